"""Dockerfiles, layers, and the engines that assemble an image from a lock."""
