"""Tests of builder; they run against the installed package and mirror its rooms."""
