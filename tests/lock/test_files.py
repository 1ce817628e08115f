"""The lock on disk: valid for others, exact for us, the same bytes every time."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import uv
from hypothesis import given
from hypothesis import strategies as st
from packaging.pylock import Pylock, is_valid_pylock_path
from packaging.requirements import Requirement

from builder.base.values import DebPackage
from builder.errors import BadInput
from builder.lock.files import lock_path, read_lock, render_pylock, render_requirements, write_lock
from builder.lock.values import Lock
from builder.matrix.values import IndexPin
from builder.names import Digest
from tests.lock.conftest import Locker, base, stack
from tests.lock.indexes import Index, make_wheel
from tests.lock.test_trap import lock, package


def full_lock() -> Lock:
    debs = tuple(
        DebPackage(
            name=name,
            version="1:2.36-9+deb12u9",
            architecture="amd64",
            sha256=Digest.of(name.encode()),
            size=1234,
            url=f"https://deb.host/pool/{name}.deb",
        )
        for name in ("libc6", "python3.11-minimal")
    )
    made = lock(
        "npu",
        ("torch-npu==2.13.0", "torch==2.13.0+cpu"),
        package("torch", "2.13.0+cpu"),
        package("torch-npu", "2.13.0", "torch", size=None),
    )
    return replace(
        made,
        toolkit="9.1.0",
        frameworks={"torch-npu": "2.13.0", "torch": "2.13.0+cpu"},
        base=replace(base(), packages=debs),
        constraints=("torch==2.13.0+cpu",),
        overrides=("numpy<3 ; python_version < '3.12'",),
        indexes=(IndexPin(index="https://cpu", packages=("torch", "torchvision")),),
        unknown_allowed=("driver 999",),
        undated=("https://cpu",),
    )


def test_a_lock_comes_back_as_it_was(tmp_path: Path) -> None:
    path = write_lock(full_lock(), tmp_path)
    assert path == lock_path(tmp_path, "npu")
    assert read_lock(path) == full_lock()
    assert render_pylock(read_lock(path)) == path.read_text()


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), st.from_regex(r"[0-9.+a-z]{1,9}", fullmatch=True)
    ),
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20), max_size=4),
)
def test_any_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, frameworks: dict[str, str], texts: list[str]
) -> None:
    made = replace(full_lock(), frameworks=frameworks, unknown_allowed=tuple(texts))
    path = tmp_path_factory.mktemp("lock") / "pylock.npu.toml"
    path.write_bytes(render_pylock(made).encode())
    assert read_lock(path) == made


def test_others_can_read_it(tmp_path: Path) -> None:
    path = write_lock(full_lock(), tmp_path)
    assert is_valid_pylock_path(path)
    read = Pylock.from_dict(tomllib.loads(path.read_text()))
    assert [item.name for item in read.packages] == ["torch", "torch-npu"]
    wheel = (read.packages[1].wheels or ())[0]
    assert wheel.hashes == {"sha256": full_lock().packages[1].sha256.hex}


def test_requirements_are_hashed_and_say_who_asked() -> None:
    text = render_requirements(full_lock())
    pins = [line.removesuffix(" \\") for line in text.splitlines() if "==" in line and not line.startswith("#")]
    assert [str(Requirement(line)) for line in pins] == ["torch==2.13.0+cpu", "torch-npu==2.13.0"]
    assert text.count("--hash=sha256:") == 2
    assert "# via the project, torch-npu" in text
    assert "--extra-index-url https://host/simple" in text


def test_uv_and_pip_install_from_it(locker: Locker, default: Index, tmp_path: Path) -> None:
    """What is written can be used without this tool."""
    default.add(make_wheel(tmp_path / "wheels", "app-lib", "1.0", requires=["leaf"]))
    leaf = make_wheel(tmp_path / "links", "leaf", "1.0+local")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    made = locker.with_settings(find_links=(str(leaf.parent),)).lock(stack("cpu", python=python), "app-lib")
    path = write_lock(made, tmp_path)
    by_uv = [uv.find_uv_bin(), "pip", "install", "--python", sys.executable, "--preview-features", "pylock"]
    by_pip = [sys.executable, "-m", "pip", "install", "--require-hashes", "--no-deps", "--index-url", default.url]
    for argv, file in ((by_uv, path), (by_pip, tmp_path / "requirements.cpu.txt")):
        target = tmp_path / f"from-{file.name}"
        done = subprocess.run(
            [*argv, "-r", file, "--target", target],
            env={**locker.environ, "PIP_CONFIG_FILE": "/dev/null"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert (target / "app_lib" / "__init__.py").is_file()
        assert (target / "leaf-1.0+local.dist-info").is_dir()


def test_the_same_world_gives_the_same_bytes(locker: Locker, default: Index, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        default.add(make_wheel(tmp_path, name, "1.0", requires=["leaf"]))
    default.add(make_wheel(tmp_path, "leaf", "1.0"))
    first, second = (render_pylock(locker.lock(stack("cpu"), "c", "a", "b")) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("format = 1", "format = 99"), "another format"),
        (("tool.builder", "tool.other"), "not made by builder"),
        (("lock-version", "lok-version"), "damaged"),
        (("sha256 = ", "md5 = "), "damaged"),
        (('arch = "x86_64"', 'arch = "vax"'), "damaged"),
        (('inputs = "sha256:', 'inputs = "sha1:'), "damaged"),
        (("[[packages]]", "[[packages"), "cannot read"),
    ],
)
def test_a_damaged_lock_is_said_to_be(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    path = write_lock(full_lock(), tmp_path)
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    with pytest.raises(BadInput) as caught:
        read_lock(path)
    assert said in caught.value.what
    assert caught.value.where is not None


def test_a_missing_lock_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        read_lock(tmp_path / "pylock.cpu.toml")
    assert "builder lock" in caught.value.fix
