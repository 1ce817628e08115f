"""Wheel archives: fetch, store, and read members once."""
