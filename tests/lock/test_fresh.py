"""Fresh or stale, told from the lock, the project and the tables alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from builder.lock.files import read_lock, write_lock
from builder.lock.fresh import stale_reasons
from builder.lock.values import Lock
from builder.matrix.values import IndexPin, Stack
from builder.names import Digest
from builder.project.values import BackendOptions, Project
from tests.lock.conftest import Locker, project, stack
from tests.lock.indexes import Index, make_wheel

BASE = "debian:bookworm"
Change = Callable[[Project, Stack], tuple[Project, Stack]]


@pytest.fixture
def made(locker: Locker, default: Index, tmp_path: Path) -> Lock:
    """The lock of a project that asks for two packages."""
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    default.add(make_wheel(tmp_path, "more", "1.0"))
    return locker.lock(stack("cpu"), "leaf", "more")


def test_what_was_just_locked_is_fresh(made: Lock, tmp_path: Path, default: Index) -> None:
    asked = len(default.requests)
    read = read_lock(write_lock(made, tmp_path))
    assert stale_reasons(read, project=project(tmp_path, "leaf", "more"), stack=stack("cpu"), base=BASE) == ()
    assert len(default.requests) == asked


def with_options(before: Project, options: BackendOptions) -> Project:
    return replace(before, backends={"cpu": options})


CHANGES: dict[str, Change] = {
    "requirement 'new' is new": lambda p, s: (replace(p, requirements=("leaf", "more", "new")), s),
    "requirement 'more' is gone": lambda p, s: (replace(p, requirements=("leaf",)), s),
    "the order of requirements changed": lambda p, s: (replace(p, requirements=("more", "leaf")), s),
    "requirement 'own' is new": lambda p, s: (with_options(p, BackendOptions(env={}, requirements=("own",))), s),
    "override 'more==1' is new": lambda p, s: (with_options(p, BackendOptions(env={}, overrides=("more==1",))), s),
    "architecture changed from x86_64 to aarch64": lambda p, s: (replace(p, arch="aarch64"), s),
    "Python changed from 3.11 to 3.12": lambda p, s: (p, replace(s, python="3.12")),
    "toolkit changed from none to 13.0": lambda p, s: (p, replace(s, toolkit="13.0")),
    "torch changed from none to 2.13.0": lambda p, s: (p, replace(s, frameworks={"torch": "2.13.0"})),
    "stack bound 'torch==2' is new": lambda p, s: (p, replace(s, constraints=("torch==2",))),
    "index pin 'torch from https://x' is new": lambda p, s: (
        p,
        replace(s, indexes=(IndexPin(index="https://x", packages=("torch",)),)),
    ),
    "it is for backend cpu": lambda p, s: (p, replace(s, backend="cuda")),
}


@pytest.mark.parametrize("reason", CHANGES)
def test_each_input_has_its_reason(made: Lock, tmp_path: Path, reason: str) -> None:
    changed, other = CHANGES[reason](project(tmp_path, "leaf", "more"), stack("cpu"))
    assert stale_reasons(made, project=changed, stack=other, base=BASE) == (reason,)


def test_base_engine_and_time_count_when_asked_for(made: Lock, tmp_path: Path) -> None:
    def reasons(base: str = BASE, **asked: str) -> tuple[str, ...]:
        return stale_reasons(made, project=project(tmp_path, "leaf", "more"), stack=stack("cpu"), base=base, **asked)

    assert reasons("debian:trixie") == ("base changed from debian:bookworm to debian:trixie",)
    assert reasons(engine="pip-tools") == ("engine changed from uv to pip-tools",)
    assert reasons(exclude_newer="2025-01-01T00:00:00Z") != ()
    assert reasons(engine="uv", exclude_newer=made.exclude_newer) == ()


@pytest.mark.parametrize(
    "edit",
    [
        lambda made: replace(made, base=replace(made.base, digest=Digest.of(b"other"))),
        lambda made: replace(made, inputs=Digest.of(b"other")),
        lambda made: replace(made, engine="pip-tools 1"),
    ],
)
def test_an_edited_lock_is_noticed(made: Lock, tmp_path: Path, edit: Callable[[Lock], Lock]) -> None:
    (reason,) = stale_reasons(edit(made), project=project(tmp_path, "leaf", "more"), stack=stack("cpu"), base=BASE)
    assert "edited" in reason


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r'sha256 = "[0-9a-f]{8}', 'sha256 = "00000000'),
        (r'\nindex = "', '\ndependencies = [{name = "more"}]\nindex = "'),
        (r"\[\[packages\]\][^\[]*\[[^\[]*", ""),
    ],
)
def test_packages_edited_by_hand_are_noticed(made: Lock, tmp_path: Path, old: str, new: str) -> None:
    path = write_lock(made, tmp_path)
    text = path.read_text()
    path.write_text(re.sub(old, new, text, count=1))
    read = read_lock(path)
    (reason,) = stale_reasons(read, project=project(tmp_path, "leaf", "more"), stack=stack("cpu"), base=BASE)
    assert reason == "it was edited: its packages do not have the digest it records"


def test_index_settings_of_a_machine_are_no_input(made: Lock, locker: Locker, vendor: Index, tmp_path: Path) -> None:
    vendor.add(make_wheel(tmp_path, "unrelated", "1.0"))
    again = locker.with_settings(extra_index_urls=(vendor.url,)).lock(stack("cpu"), "leaf", "more")
    assert again.inputs == made.inputs
