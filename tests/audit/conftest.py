"""The command line without a process, for tests that call it many times."""

from __future__ import annotations

import pytest

from tests.audit.inside import Inside


@pytest.fixture
def builder(builder_environment: dict[str, str]) -> Inside:
    """`builder ARGS…` in this process, in a clean environment."""
    return Inside(builder_environment)
