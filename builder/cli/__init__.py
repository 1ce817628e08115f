"""The command line: parses, calls, renders; no logic."""
