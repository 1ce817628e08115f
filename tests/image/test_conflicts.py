"""Two wheels, one path."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.errors import Refused
from builder.image.conflicts import shadowed_paths
from builder.image.install import Venv
from builder.store import Store
from tests.image.test_splice import wheel_file
from tests.image.wheels import build_wheel

VENV = Venv(root="/opt/venv", python="3.11")
SITE = "lib/python3.11/site-packages"


def test_fr_04_two_distributions_that_own_one_module_are_refused(tmp_path: Path, store: Store) -> None:
    one = build_wheel(tmp_path, "triton", files={"triton/__init__.py": b"", "triton/backends/compiler.py": b"one"})
    two = build_wheel(tmp_path, "triton_ascend", files={"triton/__init__.py": b"", "triton/backends/compiler.py": b"2"})
    with pytest.raises(Refused) as caught:
        shadowed_paths([wheel_file(one), wheel_file(two)], VENV, store)
    assert one.name in caught.value.what
    assert two.name in caught.value.what
    assert f"{SITE}/triton/backends/compiler.py" in caught.value.why


def test_copies_and_leftovers_pass_and_the_later_stays(tmp_path: Path, store: Store) -> None:
    same = {"nvidia/__init__.py": b"", "tests/conftest.py": b"one", "LICENSE": b"MIT", "only_one.py": b""}
    one = build_wheel(tmp_path, "one", files=same)
    two = build_wheel(
        tmp_path, "two", files={**same, "tests/conftest.py": b"two", "LICENSE": b"BSD", "only_one.py": b""}
    )
    wheels = [wheel_file(one), wheel_file(two)]
    found = shadowed_paths(wheels, VENV, store)
    shared = {f"{SITE}/{name}" for name in same}
    assert found == {one.name: shared}
    one.unlink()
    assert shadowed_paths(wheels, VENV, store) == found
