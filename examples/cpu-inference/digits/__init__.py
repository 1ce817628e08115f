"""Reads handwritten digits: a small HTTP inference service."""
