"""Tests of the readers of engines."""
