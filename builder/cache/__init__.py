"""The engine cache: compiled artefacts keyed by what makes them valid, explained when they miss."""
