"""Compatibility tables as typed rows; rules; the solver; explain."""
