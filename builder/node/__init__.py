"""Node classes and probes of the live machine."""
