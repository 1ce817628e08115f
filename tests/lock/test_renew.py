"""Fresh locks stay, stale ones say why, trapped ones are not written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from builder.base.values import LockedBase
from builder.errors import BadInput
from builder.lock.pip_tools import PipTools
from builder.lock.renew import LockOutcome, check_lock, choose_engine, renew_lock
from builder.lock.uv import Uv
from builder.matrix.values import IndexPin, Stack
from builder.names import Digest
from builder.project.values import BackendOptions, Project
from tests.lock.conftest import Locker, base, project, stack
from tests.lock.indexes import Index, make_wheel


@dataclass
class Desk:
    """One project folder and the calls on it."""

    locker: Locker
    project: Project
    stack: Stack
    bases: list[str] = field(default_factory=list)

    def resolve(self) -> LockedBase:
        self.bases.append("resolved")
        return base()

    def renew(
        self,
        *,
        upgrade: bool = False,
        now: str = "2026-01-01T00:00:00Z",
        exclude_newer: str | None = None,
        reference: str = "debian:bookworm",
        offline: bool = False,
    ) -> LockOutcome:
        return renew_lock(
            self.project,
            self.stack,
            base=reference,
            resolve_base=self.resolve,
            engine=Uv(self.locker.environ),
            policy=self.locker.policy,
            store=self.locker.store,
            settings=self.locker.settings,
            environ=self.locker.environ,
            now=now,
            exclude_newer=exclude_newer,
            reporter=self.locker.notes,
            offline=offline,
            upgrade=upgrade,
        )

    def check(self, reference: str = "debian:bookworm", **asked: str) -> LockOutcome:
        return check_lock(self.project, self.stack, base=reference, policy=self.locker.policy, **asked)


@pytest.fixture
def desk(locker: Locker, default: Index, tmp_path: Path) -> Desk:
    """A project that asks for one package, of which the index has a version."""
    default.add(make_wheel(tmp_path / "wheels", "leaf", "1.0"))
    default.add(make_wheel(tmp_path / "wheels", "more", "1.0"))
    return Desk(locker, project(tmp_path, "leaf"), stack("cpu"))


def test_a_fresh_lock_stays_byte_for_byte(desk: Desk, default: Index, tmp_path: Path) -> None:
    first = desk.renew()
    assert (first.verdict, first.path) == ("locked", tmp_path / "pylock.cpu.toml")
    before = first.path.read_bytes(), (tmp_path / "requirements.cpu.txt").read_bytes()
    default.add(make_wheel(tmp_path / "wheels", "leaf", "2.0"))
    (tmp_path / "requirements.cpu.txt").unlink()
    asked = len(default.requests)
    second = desk.renew(now="2026-06-01T00:00:00Z")
    assert (second.verdict, second.lock) == ("fresh", first.lock)
    assert (first.path.read_bytes(), (tmp_path / "requirements.cpu.txt").read_bytes()) == before
    assert len(default.requests) == asked
    assert desk.bases == ["resolved"]


def test_upgrade_takes_the_newest(desk: Desk, default: Index, tmp_path: Path) -> None:
    desk.renew()
    default.add(make_wheel(tmp_path / "wheels", "leaf", "2.0"))
    outcome = desk.renew(upgrade=True, now="2026-06-01T00:00:00Z")
    assert outcome.lock.packages[0].version == "2.0"
    assert outcome.lock.exclude_newer == "2026-06-01T00:00:00Z"
    assert desk.bases == ["resolved"] * 2


def test_a_stale_lock_keeps_versions_and_base(desk: Desk, default: Index, tmp_path: Path) -> None:
    desk.renew()
    default.add(make_wheel(tmp_path / "wheels", "leaf", "2.0"))
    desk.project = project(tmp_path, "leaf", "more")
    outcome = desk.renew()
    assert {item.name: item.version for item in outcome.lock.packages} == {"leaf": "1.0", "more": "1.0"}
    assert desk.bases == ["resolved"]
    assert desk.renew(reference="debian:trixie").verdict == "locked"
    assert desk.bases == ["resolved"] * 2


CHANGES: list[tuple[Callable[[Desk], None], str]] = [
    (lambda desk: setattr(desk, "project", project(desk.locker.folder, "leaf", "more")), "requirement 'more' is new"),
    (lambda desk: setattr(desk, "project", project(desk.locker.folder, "more")), "requirement 'leaf' is gone"),
    (
        lambda desk: setattr(
            desk,
            "project",
            project(desk.locker.folder, "leaf", backends={"cpu": BackendOptions(env={}, overrides=("more==1.0",))}),
        ),
        "override 'more==1.0' is new",
    ),
    (lambda desk: setattr(desk, "project", replace(desk.project, arch="aarch64")), "architecture changed"),
    (lambda desk: setattr(desk, "stack", replace(desk.stack, python="3.12")), "Python changed from 3.11 to 3.12"),
    (lambda desk: setattr(desk, "stack", replace(desk.stack, toolkit="13.0")), "toolkit changed from none to 13.0"),
    (
        lambda desk: setattr(desk, "stack", replace(desk.stack, frameworks={"torch": "2.13.0"})),
        "torch changed from none to 2.13.0",
    ),
    (
        lambda desk: setattr(desk, "stack", replace(desk.stack, constraints=("torch==2.13.0+cpu",))),
        "stack bound 'torch==2.13.0+cpu' is new",
    ),
    (
        lambda desk: setattr(
            desk, "stack", replace(desk.stack, indexes=(IndexPin(index="https://x", packages=("torch",)),))
        ),
        "index pin 'torch from https://x' is new",
    ),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES, ids=[reason for _, reason in CHANGES])
def test_check_tells_why_a_lock_is_stale_without_the_network(
    desk: Desk, default: Index, change: Callable[[Desk], None], reason: str
) -> None:
    desk.renew()
    assert desk.check().verdict == "fresh"
    change(desk)
    asked = len(default.requests)
    outcome = desk.check()
    assert outcome.verdict == "stale"
    assert any(reason in line for line in outcome.stale), outcome.stale
    assert len(default.requests) == asked


def test_base_engine_and_time_count_when_asked_for(desk: Desk) -> None:
    desk.renew()
    assert desk.check("debian:trixie").stale == ("base changed from debian:bookworm to debian:trixie",)
    assert desk.check(engine="pip-tools").stale == ("engine changed from uv to pip-tools",)
    assert desk.check(exclude_newer="2025-01-01T00:00:00Z").verdict == "stale"
    assert desk.check(exclude_newer="2026-01-01T00:00:00Z", engine="uv").verdict == "fresh"


def test_an_edited_lock_is_noticed(desk: Desk) -> None:
    path = desk.renew().path
    text = path.read_text()
    path.write_text(text.replace(f'digest = "{Digest.of(b"base")}"', f'digest = "{Digest.of(b"other")}"'))
    assert any("edited" in line for line in desk.check().stale)


def test_a_missing_lock_cannot_be_checked(desk: Desk) -> None:
    with pytest.raises(BadInput, match="no lock"):
        desk.check()


def test_a_trapped_lock_is_refused_measured_and_not_written(desk: Desk, default: Index, tmp_path: Path) -> None:
    default.add(make_wheel(tmp_path / "wheels", "torch", "2.13.0", requires=["nvidia-cublas"]))
    heavy = {"nvidia/libcublas.so": bytes(5_000_000)}
    cublas = default.add(make_wheel(tmp_path / "wheels", "nvidia-cublas", "13.1", files=heavy))
    first = desk.renew()
    before = first.path.read_bytes()
    desk.project = project(tmp_path, "torch")
    outcome = desk.renew()
    assert outcome.verdict == "refused"
    assert outcome.lock.packages[0].name == "nvidia-cublas"
    item = next(item for item in outcome.blocked if item.package == "nvidia-cublas")
    assert item.size == cublas.stat().st_size < 100_000
    assert item.installed is not None
    assert 5_000_000 < item.installed < 5_010_000
    assert first.path.read_bytes() == before
    assert all(header is not None for header in default.fetched(cublas) if header)


def test_a_lock_that_became_trapped_is_refused_by_check_too(desk: Desk, default: Index, tmp_path: Path) -> None:
    """The table may learn about a package after the lock was made."""
    default.add(make_wheel(tmp_path / "wheels", "tensorrt-thing", "1.0"))
    desk.project = project(tmp_path, "tensorrt-thing")
    policy = desk.locker.policy
    desk.locker.policy = replace(policy, packages=())
    assert desk.renew().verdict == "locked"
    desk.locker.policy = policy
    assert desk.check().verdict == "refused"
    assert desk.renew().verdict == "refused"


def test_the_engine_of_the_lock_at_hand_stays(desk: Desk, tmp_path: Path) -> None:
    def chosen(name: str | None) -> str:
        return choose_engine(name, folder=tmp_path, backend="cpu", environ={}).name

    assert chosen(None) == "uv"
    path = desk.renew().path
    path.write_text(path.read_text().replace('engine = "uv ', 'engine = "pip-tools '))
    assert chosen(None) == PipTools.name
    assert chosen("uv") == "uv"
    with pytest.raises(BadInput, match="unknown engine"):
        chosen("uvv")
