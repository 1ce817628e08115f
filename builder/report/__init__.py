"""Rendering of results: text, JSON, SARIF, JUnit."""
