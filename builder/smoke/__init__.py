"""Runs the checks in an image on a node, and keeps what they found."""
