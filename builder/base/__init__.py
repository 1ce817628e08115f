"""Base images: any OCI reference, or a minimal Python base made from Debian packages."""
