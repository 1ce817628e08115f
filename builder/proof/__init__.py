"""The static proof that an image loads on a node class."""
