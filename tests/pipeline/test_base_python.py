"""The base's own Python, really run by the built-in runner."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from builder.base.values import LockedBase
from builder.errors import OutsideFailed, Refused
from builder.events import SilentReporter
from builder.image.base_layers import base_image
from builder.image.oci import assemble
from builder.image.values import ImagePlan
from builder.names import Arch, Reference
from builder.pipeline.base_python import UnpackedBase
from builder.registry.layout import Layout
from builder.smoke.builtin import BuiltinRunner
from builder.store import Store
from tests.docker.conftest import base, open_repository, plan  # noqa: F401 - fixtures

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def compiling(plan: ImagePlan) -> ImagePlan:  # noqa: F811
    return replace(plan, project=plan.project.with_layers(bytecode=True), lock=replace(plan.lock, python=PYTHON))


def unpacked_base(plan: ImagePlan, store: Store, *, modes: tuple[str, ...] = ("user", "root")) -> UnpackedBase:  # noqa: F811
    opener: Callable[[Reference], Layout] = open_repository
    return UnpackedBase(
        plan.lock,
        partial(base_image, plan.lock.base, plan.lock.arch, store, SilentReporter(), open_repository=opener),
        BuiltinRunner(scratch=store.root / "tmp", reporter=SilentReporter(), modes=modes),  # type: ignore[arg-type]
    )


def test_wheels_are_compiled_in_the_base(compiling: ImagePlan, store: Store, tmp_path: Path) -> None:
    with unpacked_base(compiling, store) as python:
        made = assemble(
            compiling,
            target=Layout(tmp_path / "out"),
            tag="1",
            store=store,
            reporter=SilentReporter(),
            open_repository=open_repository,
            python=python,
        )
        assert made.layers[-3].title.startswith("bytecode of ")
    assert not list((store.root / "tmp").iterdir()), "the unpacked base is gone"


def test_what_a_program_writes_is_ours_and_its_failure_is_told(
    compiling: ImagePlan, store: Store, tmp_path: Path
) -> None:
    out = tmp_path / "written"
    out.mkdir()
    given = tmp_path / "given"
    given.write_text("given")
    with unpacked_base(compiling, store) as python:
        program = (
            "import os; open('/run/x/out/file', 'w').write(open('/run/x/in').read());"
            "print(os.environ['PYTHONHASHSEED'])"
        )
        said = python.run(["-c", program], read={"/run/x/in": given}, write={"/run/x/out": out})
        assert (said, (out / "file").read_text()) == ("0\n", "given")
        with pytest.raises(OutsideFailed, match="could not compile bytecode") as caught:
            python.run(["-c", "open('/run/x/in', 'w')"], read={"/run/x/in": given}, write={})
        assert "Read-only file system" in caught.value.why


def test_another_machine_or_no_namespaces_is_refused_with_the_mend(compiling: ImagePlan, store: Store) -> None:
    other: Arch = "aarch64" if compiling.lock.arch == "x86_64" else "x86_64"
    foreign = replace(compiling, lock=replace(compiling.lock, arch=other))
    with unpacked_base(foreign, store) as python, pytest.raises(Refused, match="cannot be compiled here") as caught:
        python.run(["-c", ""], read={}, write={})
    assert "leave --compile-bytecode out" in caught.value.fix
    with (
        unpacked_base(compiling, store, modes=()) as python,
        pytest.raises(Refused, match="cannot be compiled on this machine") as caught,
    ):
        python.run(["-c", ""], read={}, write={})
    assert "--engine docker" in caught.value.fix


def test_the_base_is_not_unpacked_before_it_is_needed(compiling: ImagePlan, store: Store) -> None:
    def never() -> None:
        raise AssertionError("the base was opened")

    with UnpackedBase(compiling.lock, never, BuiltinRunner(scratch=store.root, reporter=SilentReporter())):  # type: ignore[arg-type]
        pass
    assert isinstance(compiling.lock.base, LockedBase)
