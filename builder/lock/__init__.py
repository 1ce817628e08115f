"""From a stack to a hashed lock, by uv (default) or pip-tools."""
