"""`builder cache doctor` on real images, and on this machine with what may be wrong with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.image import labels
from builder.names import Digest
from builder.registry.layout import Layout
from tests.conftest import RunBuilder
from tests.schemas import document, error
from tests.smoke import images

ENV = {
    "TORCHINDUCTOR_CACHE_DIR": "/engines",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
}
SET = [part for name, value in ENV.items() for part in ("--env-var", f"{name}={value}")]


def owned(item: tuple[tarfile.TarInfo, bytes], uid: int) -> tuple[tarfile.TarInfo, bytes]:
    item[0].uid = item[0].gid = uid
    return item


def folder(name: str, uid: int = 0, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return owned(images.entry(name, kind=tarfile.DIRTYPE, mode=mode), uid)


BASE = images.tar_of(
    [
        folder("etc"),
        images.entry("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\napp:x:10001:10001:app:/home/app:/bin/sh\n"),
        folder("tmp", mode=0o1777),
        folder("usr"),
        folder("usr/bin"),
    ]
)
COMPILER = images.tar_of([images.entry("usr/bin/g++", b"\x7fELF", mode=0o755)])
ENGINES = images.tar_of([folder("engines", uid=10001), owned(images.entry("engines/kernel.so", b"code"), 10001)])


def write(tmp_path: Path, *layers: images.Tarred, packages: str = '{"torch": "2.13.0+cpu"}') -> str:
    told = {
        labels.BACKEND: "cpu",
        labels.PYTHON: "3.11",
        labels.LOCK: str(Digest.of(b"lock")),
        labels.PACKAGES: packages,
    }
    images.write_image(Layout(tmp_path / "layout"), [BASE, *layers], labels=told)
    return f"oci:{tmp_path}/layout:test"


def doctor(run_builder: RunBuilder, *arguments: str, env: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    done = run_builder("cache", "doctor", *arguments, "--json", env=env)
    return done.returncode, document(done, "cache-doctor")


def not_ok(found: dict[str, Any]) -> dict[str, str]:
    (kind,) = found["kinds"]
    return {one["name"]: one["detail"] for one in kind["findings"] if one["verdict"] not in ("ok", "warn")}


def test_an_image_that_holds_all_it_needs(run_builder: RunBuilder, tmp_path: Path) -> None:
    code, found = doctor(run_builder, write(tmp_path, COMPILER, ENGINES), *SET)
    assert (code, found["verdict"], found["kinds"][0]["kind"]) == (0, "ok", "inductor")
    assert not_ok(found) == {}


@pytest.mark.parametrize(
    ("layers", "options", "name", "detail"),
    [
        ((ENGINES,), SET, "program g++", "there is no g++"),
        ((COMPILER,), SET, "folder", "is not in the image: it is new and empty in each container"),
        ((COMPILER, ENGINES), (*SET, "--user", "app:20"), "", ""),
        ((COMPILER, ENGINES), (*SET, "--user", "65534"), "folder", "uid 65534 cannot write it"),
        ((COMPILER, ENGINES), (*SET, "--read-only"), "folder", "on a read-only mount"),
        ((COMPILER,), (*SET, "--mount", "/engines"), "", ""),
        ((COMPILER, images.tar_of([folder("engines", uid=10001)])), SET, "folder", "is empty in the image"),
        (
            (COMPILER, ENGINES),
            (*SET, "--env-var", "TORCH_COMPILE_FORCE_DISABLE_CACHES=1"),
            "TORCH_COMPILE_FORCE_DISABLE_CACHES",
            "asks none of its caches",
        ),
        (
            (COMPILER, ENGINES, images.tar_of([images.entry("engines/.wh..wh..opq")])),
            SET,
            "folder",
            "is empty in the image",
        ),
    ],
    ids=["slim", "no folder", "owner", "other user", "read-only", "mounted", "empty", "switched off", "removed above"],
)
def test_what_an_image_lacks(
    run_builder: RunBuilder,
    tmp_path: Path,
    layers: tuple[images.Tarred, ...],
    options: tuple[str, ...],
    name: str,
    detail: str,
) -> None:
    code, found = doctor(run_builder, write(tmp_path, *layers), *options)
    assert (code, found["verdict"]) == ((1, "miss") if name else (0, "ok"))
    told = not_ok(found)
    assert list(told) == ([name] if name else [])
    assert detail in told.get(name, "")


def test_versions_that_differ_from_the_engine_kept(run_builder: RunBuilder, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    (made / "kernel.so").write_bytes(b"code")
    model = "sha256:" + "1" * 64
    put = ("--set", "torch=2.12.0", "--node-class", "cpu-x86-64-v3", "--model", model, "--set", "toolkit=none")
    variables = [part for name, value in list(ENV.items())[1:] for part in ("--env-var", f"{name}={value}")]
    assert run_builder("cache", "put", "inductor", str(made), *put, *variables).returncode == 0
    image = write(tmp_path, COMPILER, ENGINES)
    code, found = doctor(run_builder, image, *SET, "--model", model, "--node-class", "cpu-x86-64-v3")
    assert (code, found["node_class"]) == (1, "cpu-x86-64-v3")
    assert not_ok(found) == {"engine": "none fits; of the nearest torch is 2.13.0+cpu here, 2.12.0 there"}
    options = (*SET, "--model", model, "--node-class", "cpu-x86-64-v3", "--set", "torch=2.12.0")
    code, found = doctor(run_builder, image, *options)
    assert (code, found["verdict"]) == (0, "ok")
    assert found["kinds"][0]["findings"][-1]["detail"].endswith("nothing differs")


def test_the_text_reads_as_sentences(run_builder: RunBuilder, tmp_path: Path) -> None:
    done = run_builder("cache", "doctor", write(tmp_path, ENGINES), *SET)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "inductor: miss, it would compile"
    assert "  ok      folder: /engines (TORCHINDUCTOR_CACHE_DIR), 1 file" in lines
    at = next(number for number, line in enumerate(lines) if line.startswith("  miss    program g++: there is no g++"))
    assert lines[at + 1].startswith("          put g++ into the image")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, from which nothing may be run."""
    place = tmp_path / "mounted"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "noexec,size=1m", "engines", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_on_this_machine_mounts_are_looked_at(run_builder: RunBuilder, mounted: Path) -> None:
    (mounted / "kernel.so").write_bytes(b"code")
    os.utime(mounted / "kernel.so", (4102444800, 4102444800))
    env = {**ENV, "TORCHINDUCTOR_CACHE_DIR": str(mounted)}
    _, found = doctor(run_builder, "--kind", "inductor", env=env)
    told = {one["name"]: one["detail"] for one in found["kinds"][0]["findings"] if one["verdict"] != "ok"}
    assert "noexec" in told["folder"]
    assert "MiB are left" in told["room"]
    assert "ahead of this clock" in told["clock"]
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    _, found = doctor(run_builder, "--kind", "inductor", env=env)
    folder = next(one for one in found["kinds"][0]["findings"] if one["name"] == "folder")
    assert folder["verdict"] == "miss"
    assert "on a read-only mount" in folder["detail"]


def test_what_lies_in_the_folder_is_held_against_what_is_here(run_builder: RunBuilder, tmp_path: Path) -> None:
    kernel = tmp_path / "triton" / ("A" * 52)
    kernel.mkdir(parents=True)
    about = {"target": {"backend": "cuda", "arch": 120, "warp_size": 32}, "triton_version": "3.4.0", "name": "k"}
    (kernel / "k.json").write_text(json.dumps(about), encoding="utf-8")
    (kernel / "k.ttir").write_text("module {}", encoding="utf-8")
    env = {"TRITON_CACHE_DIR": str(tmp_path / "triton")}
    options = ("--kind", "triton-nvidia", "--set", "compute-capability=12.1", "--set", "triton=3.4.0")
    code, found = doctor(run_builder, *options, env=env)
    assert code == 1
    told = not_ok(found)
    assert told["contents"].startswith("what is in the folder was made with compute-capability 12.0, here it is 12.1: ")


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        ((), "which engines are meant?", "--kind inductor"),
        (("--kind", "inductr"), "unknown engine kind 'inductr'", "'inductor'"),
        (("--mount", "engines"), "--mount engines is no absolute path", "as the program sees it"),
        (("--mount", "/engines"), "--mount without an image", "name the image"),
        (("--read-only",), "--read-only without an image", "name the image"),
        (("--user", "app"), "--user without an image", "name the image"),
        (("--env-var", "X"), "--env-var 'X' is not of the form NAME=VALUE", "e.g."),
    ],
)
def test_questions_that_are_wrong(run_builder: RunBuilder, arguments: tuple[str, ...], what: str, fix: str) -> None:
    found = error(run_builder("cache", "doctor", "--json", *arguments), 2)
    assert found["what"] == what
    assert fix in found["fix"]


def test_a_user_the_image_does_not_have(run_builder: RunBuilder, tmp_path: Path) -> None:
    done = run_builder("cache", "doctor", write(tmp_path), "--json", "--user", "nobody")
    found = error(done, 2)
    assert (found["why"], found["fix"]) == ("its /etc/passwd has no 'nobody'", "give a numeric uid:gid")


def test_it_runs_where_nothing_else_is_installed() -> None:
    """No network and no store are needed: it is called in a container that misses."""
    done = subprocess.run(
        [sys.executable, "-m", "builder", "cache", "doctor", "--kind", "jax-xla", "--offline", "--json"],
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = document(done, "cache-doctor")
    assert "JAX_COMPILATION_CACHE_DIR is not set: nothing is kept" in json.dumps(found)
