"""OCI distribution: client, layout on disk, authentication, referrers, tags."""
