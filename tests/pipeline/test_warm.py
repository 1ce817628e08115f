"""`builder cache warm` on real images: two passes of a program that compiles into the folder it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.cache import EngineCache, Entry
from builder.cache.warm import sampled
from builder.cache.watch import watching
from builder.smoke.values import RunnableImage
from tests.conftest import RunBuilder
from tests.schemas import document, error
from tests.smoke import images
from tests.smoke.conftest import MakeImage, image_maker

COMPILES = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "ab")
assert os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] == "1"
{extra}
kernel = folder / "kernel.so"
if kernel.exists():
    assert kernel.read_bytes() == b"machine code"
else:
    folder.mkdir(exist_ok=True)
    (folder / "kernel.lock").write_text(str(os.getpid()))
    kernel.write_bytes(b"machine code")
"""


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> images.Tarred:
    folder = tmp_path_factory.mktemp("base") / "root"
    folder.mkdir()
    images.base_root(folder)
    return images.tar_of_folder(folder)


@pytest.fixture
def make_image(tmp_path: Path, layer: images.Tarred) -> MakeImage:
    return image_maker(tmp_path, layer)


def image(make_image: MakeImage, program: str) -> RunnableImage:
    return make_image(packages={"torch": "2.13.0+cpu"}, warmup=["/opt/venv/bin/python", "-c", program])


def warm(run_builder: RunBuilder, tmp_path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = run_builder(
        "cache", "warm", f"oci:{tmp_path}/layout:test", "--cache", str(tmp_path / "engines"), "--json", *options
    )
    return done.returncode, document(done, "cache-warm")


def kept(tmp_path: Path) -> list[str]:
    entries = EngineCache(tmp_path / "engines").entries()
    return [str(entry.digest) for entry in entries if isinstance(entry, Entry)]


def test_what_the_first_pass_compiles_the_second_only_reads(
    run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path
) -> None:
    made = image(make_image, COMPILES.format(extra=""))
    code, found = warm(run_builder, tmp_path)
    assert (code, found["verdict"], found["kind"], found["why"]) == (0, "warmed", "inductor", "")
    assert (found["first"]["compiled"], found["first"]["read"]) == (1, 0)
    assert (found["second"]["compiled"], found["second"]["read"], found["second"]["elsewhere"]) == (0, 1, 0)
    assert found["environment"] == {
        "TORCHINDUCTOR_CACHE_DIR": "/run/builder/engines",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }
    factors = {one["name"]: one["value"] for one in found["entry"]["factors"]}
    assert factors["model"] == str(made.digest) == found["digest"]
    assert (factors["torch"], factors["device"], factors["toolkit"]) == ("2.13.0+cpu", "cpu", "none")
    assert factors["TORCHINDUCTOR_VEC_ISA_OK"] == "1", "what the warm-up sets decides what upstream looks for"
    assert kept(tmp_path) == [found["key"]]
    assert not list((tmp_path / "store" / "tmp").iterdir())


def test_the_text_tells_both_passes(run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path) -> None:
    image(make_image, COMPILES.format(extra=""))
    done = run_builder("cache", "warm", f"oci:{tmp_path}/layout:test", "--workers", "3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("first pass: ")
    assert lines[0].endswith(" s, 1 compiled, 0 read")
    assert lines[1].endswith(" s, 0 compiled, 1 read")
    assert "warmed" in lines[2]


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        (
            "folder = folder / str(time.time_ns())\nfolder.mkdir(parents=True)",
            "the second pass still compiled: 1 file (",
        ),
        ("if folder.exists(): sys.exit()", "read nothing from the folder"),
        (
            "import tempfile\npathlib.Path(tempfile.gettempdir(), 'headers.h.gch').write_bytes(b'compiled header')",
            "the second pass still compiled, outside the folder: headers.h.gch",
        ),
        (
            (
                "import tempfile\npart = pathlib.Path(tempfile.gettempdir(), 'ccAb3dEf.s')\n"
                "part.write_text('ret')\npart.unlink()"
            ),
            "the second pass still compiled, outside the folder: ccAb3dEf.s",
        ),
        ("sys.exit()", "the warmup left nothing in the folder that TORCHINDUCTOR_CACHE_DIR names"),
    ],
    ids=[
        "a key that changes",
        "a cache that is not used",
        "a header beside the cache",
        "a compiler at work",
        "nothing compiled",
    ],
)
def test_an_engine_whose_use_is_not_proven_is_not_kept(
    run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path, extra: str, why: str
) -> None:
    """FR-20: ready is said before the kernels exist; only a second pass that compiles nothing shows that they do."""
    image(make_image, COMPILES.format(extra=extra))
    code, found = warm(run_builder, tmp_path)
    assert (code, found["verdict"], found["entry"]) == (1, "failed", None)
    assert why in found["why"]
    assert found["fix"]
    assert kept(tmp_path) == []


def test_several_workers_share_a_folder_and_a_sample_of_the_requests(
    run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path
) -> None:
    program = """
import os, pathlib
folder = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
asked = pathlib.Path(os.environ["BUILDER_REQUESTS"]).read_text().split()
assert len(asked) == 4, asked
assert os.environ["BUILDER_WORKERS"] == "3"
for shape in asked[int(os.environ["BUILDER_WORKER"]) :: 3]:
    kernel = folder / f"{shape}.so"
    if kernel.exists():
        assert kernel.read_text() == shape
    else:
        kernel.write_text(shape)
"""
    image(make_image, program)
    (tmp_path / "requests").write_text("".join(f"1x{number}\n\n" for number in range(100)))
    options = ("--workers", "3", "--requests", str(tmp_path / "requests"), "--sample", "4")
    code, found = warm(run_builder, tmp_path, *options)
    assert (code, found["verdict"]) == (0, "warmed")
    assert (found["first"]["compiled"], found["second"]["compiled"], found["second"]["read"]) == (4, 0, 4)


def test_a_sample_is_the_same_every_time() -> None:
    lines = [str(number) for number in range(100)]
    assert sampled(lines, 5) == sampled(lines, 5)
    assert list(map(int, sampled(lines, 5))) == sorted(map(int, sampled(lines, 5)))
    assert sampled(lines, None) == sampled(lines, 200) == tuple(lines)


@pytest.mark.parametrize(
    ("content", "options", "what"),
    [
        (b"", ("--requests", "requests"), "requests is empty"),
        (b"\xff\xfe\x00", ("--requests", "requests"), "requests is no text"),
        (b"1\n", ("--sample", "3"), "--sample without --requests"),
    ],
)
def test_requests_that_cannot_be_used(
    run_builder: RunBuilder,
    make_image: MakeImage,
    tmp_path: Path,
    content: bytes,
    options: tuple[str, ...],
    what: str,
) -> None:
    image(make_image, COMPILES.format(extra=""))
    (tmp_path / "requests").write_bytes(content)
    found = error(run_builder("cache", "warm", f"oci:{tmp_path}/layout:test", "--json", *options), 2)
    assert found["what"] == what
    assert found["fix"]


def test_there_is_no_network_in_either_pass(run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path) -> None:
    program = """
import socket
socket.create_server(("127.0.0.1", 0)).close()
try:
    socket.create_connection(("198.51.100.1", 80), timeout=5)
except OSError as error:
    assert "unreachable" in str(error), error
else:
    raise SystemExit("there is a network")
"""
    image(make_image, COMPILES.format(extra=program))
    code, found = warm(run_builder, tmp_path)
    assert (code, found["verdict"]) == (0, "warmed")


def test_an_engine_kept_before_must_serve_and_stays(
    run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path
) -> None:
    image(make_image, COMPILES.format(extra=""))
    _, first = warm(run_builder, tmp_path)
    code, again = warm(run_builder, tmp_path)
    assert (code, again["key"], again["entry"]["created"]) == (0, first["key"], first["entry"]["created"])


def test_on_another_machine_nothing_runs(run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path) -> None:
    image(make_image, COMPILES.format(extra=""))
    code, found = warm(run_builder, tmp_path, "--node-class", "cpu-armv8.0-a")
    assert (code, found["verdict"], found["first"]) == (4, "not-run", None)
    assert "this machine is not cpu-armv8.0-a" in found["why"]


def test_a_warmup_that_fails_is_no_answer_about_engines(
    run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path
) -> None:
    image(make_image, "raise SystemExit('no model here')")
    done = run_builder("cache", "warm", f"oci:{tmp_path}/layout:test", "--json")
    found = error(done, 1)
    assert found["what"] == "the warmup failed in the first pass"
    assert "no model here" in found["why"]


def test_what_is_set_by_hand_wins_and_is_in_the_key(
    run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path
) -> None:
    image(make_image, COMPILES.format(extra="assert os.environ['TORCHINDUCTOR_VEC_ISA_OK'] == '0'"))
    code, found = warm(run_builder, tmp_path, "--env-var", "TORCHINDUCTOR_VEC_ISA_OK=0")
    assert (code, found["environment"]["TORCHINDUCTOR_VEC_ISA_OK"]) == (0, "0")
    assert {"name": "TORCHINDUCTOR_VEC_ISA_OK", "value": "0"}.items() <= next(
        one for one in found["entry"]["factors"] if one["name"] == "TORCHINDUCTOR_VEC_ISA_OK"
    ).items()


def test_the_folder_can_be_told_under_another_name(
    run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path
) -> None:
    image(make_image, COMPILES.replace("TORCHINDUCTOR_CACHE_DIR", "OWN_FOLDER").format(extra=""))
    code, found = warm(run_builder, tmp_path, "--kind", "inductor", "--variable", "OWN_FOLDER")
    assert (code, found["verdict"]) == (0, "warmed")


@pytest.mark.parametrize(
    ("options", "packages", "what"),
    [
        ((), {"numpy": "2.0"}, "which engines are meant?"),
        ((), {"torch": "2.13.0+cpu", "jax": "0.9", "jaxlib": "0.9"}, "which engines are meant?"),
        (("--kind", "openvino"), {"openvino": "2026.2"}, "nothing tells a program where to keep its openvino engines"),
        (("--kind", "inductr"), {"torch": "2.13.0+cpu"}, "unknown engine kind 'inductr'"),
        (("--variable", "X"), {"torch": "2.13.0+cpu"}, "--variable without --kind"),
        (("--node-class", "h100"), {"torch": "2.13.0+cpu"}, ""),
    ],
)
def test_questions_that_cannot_be_answered(
    run_builder: RunBuilder,
    make_image: MakeImage,
    tmp_path: Path,
    options: tuple[str, ...],
    packages: dict[str, str],
    what: str,
) -> None:
    make_image(packages=packages, warmup=["true"])
    found = error(run_builder("cache", "warm", f"oci:{tmp_path}/layout:test", "--json", *options), 2)
    assert what in found["what"]
    assert found["fix"]


def test_without_a_warmup_the_mend_is_named(run_builder: RunBuilder, make_image: MakeImage, tmp_path: Path) -> None:
    make_image(packages={"torch": "2.13.0+cpu"})
    found = error(run_builder("cache", "warm", f"oci:{tmp_path}/layout:test", "--json"), 2)
    assert "[warmup]" in found["fix"]


def test_openings_are_seen_in_every_folder(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for path in ("one", "deep/two", "deep/er/three", "untouched"):
        (tmp_path / path).write_text("x")
    with watching(tmp_path) as seen:
        for path in ("one", "deep/two", "deep/er/three"):
            (tmp_path / path).read_text()
    assert seen.opened == {"one", "deep/two", "deep/er/three"}
    assert seen.complete


def test_the_table_of_folders_holds_known_kinds() -> None:
    from builder import resources
    from builder.cache import kind_names
    from builder.cache.folders import load_folders

    folders = load_folders(resources.checks_dir() / "engines.toml")
    assert folders.keys() <= set(kind_names())
    assert json.dumps(sorted(folders))
