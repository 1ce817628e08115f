"""Generators on small sources of the published shape: rows, a stable diff, and sources too short to be true."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pytest

from builder import resources
from builder.errors import BadInput, OutsideFailed
from builder.matrix.load import check_tables, load_table_file
from builder.matrix.refresh import GENERATORS, Drift, TooShort, drift, read_source
from tests.conftest import RunBuilder
from tests.schemas import document, error

CHECKED = dt.date(2026, 12, 7)

BUILD_MATRIX = '''\
"""Build matrix."""
import os
from typing import Dict, List

PYTHON_ARCHES_DICT = {"nightly": ["3.11", "3.12"], "release": ["3.11", "3.12", "3.13"]}
CUDA_ARCHES_DICT = {"nightly": ["13.4"], "release": ["12.6", "13.2"]}
ROCM_ARCHES_DICT = {"nightly": ["10.1"], "release": ["7.14", "10.0"]}
CUDA_CUDDN_VERSIONS = {"13.2": {"cuda": "13.2.2", "cudnn": "9"}}
STABLE_CUDA_VERSIONS: Dict[str, str] = {"nightly": "13.4", "release": "13.2"}
CURRENT_STABLE_VERSION = "2.16.0"
mod = os.environ.get("X")
'''

ROCM = """\
ROCm Version,8.1.0,8.0.2,7.2.3
:ref:`Operating systems <os>`,Ubuntu 26.04,Ubuntu 24.04,Ubuntu 24.04.3
:doc:`PyTorch <../pytorch>`,"2.15, 2.14",2.14 [#fn]_,"2.9.1, 2.8.0, 2.7.1"
HIP,8.1.1,8.0.9,7.2.99999
  :doc:`MIOpen <miopen:index>`,4.0.0,3.9.0,3.5.1
 `ONNX Runtime <https://onnxruntime.ai>`_,1.30.0,1.29.0,1.23.2
"""

IMAGES = {
    "cann": [
        {
            "cann_version": "9.9.0",
            "cann_chip": chip,
            "os_name": system.rstrip(".0123456789"),
            "os_version": system.lstrip("abcdefghijklmnopqrstuvwxyz"),
            "py_version": python,
            "tags": [f"9.9.0-{tag}-{system}-py{python}"],
        }
        for chip, tag, system, python in (
            ("910b", "910b", "ubuntu24.04", "3.11"),
            ("910b", "910b", "ubuntu24.04", "3.12"),
            ("910b", "910b", "openeuler24.03", "3.11"),
            ("910b", "910b", "openeuler24.03", "3.12"),
            ("310p", "310p", "ubuntu24.04", "3.12"),
            ("Atlas-A3", "a3", "ubuntu24.04", "3.12"),
        )
    ]
}

MANIFEST = {
    "manifest_date": "2026-12-01",
    "neuron_releases": [
        {
            "neuron_version": version,
            "packages": [
                {"name": "torch_neuronx", "version": "2.14.3.0.9"},
                {"name": "torch-neuronx", "version": "2.13.3.0.9"},
                {"name": "neuronx-cc", "version": "2.29.1.0"},
                {"name": "aws-neuronx-dkms", "version": "2.32.0.0"},
                {"name": "something-else", "version": "1"},
                {"name": "neuronx-cc", "version": "1.0", "supported_instances": ["inf1"]},
            ],
        }
        for version in ("2.34.0", "2.34.1", "2.35.0")
    ],
}

METADATA = """\
Metadata-Version: 2.1
Name: torch_xla
Version: 2.10.0
Requires-Dist: absl-py
Provides-Extra: tpu
Requires-Dist: libtpu==0.0.24; extra == "tpu"
Provides-Extra: pallas
Requires-Dist: jax==0.8.0; extra == "pallas"

torch_xla
"""

JAX = {
    "info": {
        "name": "jax",
        "version": "0.13.0",
        "requires_python": ">=3.12",
        "requires_dist": [
            "jaxlib<=0.13.0,>=0.13.0",
            "numpy>=2.0",
            'libtpu==0.0.55.*; extra == "tpu"',
            'jax-cuda13-plugin==0.13.0; extra == "cuda13"',
        ],
    }
}

INDEX = {
    "files": [
        {"filename": f"torch_npu-2.16.{patch}-cp3{minor}-cp3{minor}-manylinux_2_28_{arch}.whl", "upload-time": upload}
        for patch in range(5)
        for minor in (11, 12)
        for arch, upload in (("aarch64", "2026-12-02T01:00:00Z"), ("x86_64", "2026-12-01T09:00:00Z"))
    ]
    + [{"filename": "torch_npu-2.16.0.tar.gz", "upload-time": "2026-12-01T09:00:00Z"}]
}

SOURCES = {
    "torch-cuda": BUILD_MATRIX,
    "torch-rocm": BUILD_MATRIX,
    "rocm-members": ROCM,
    "cann-images": json.dumps(IMAGES),
    "neuron-sdk": json.dumps(MANIFEST),
    "torch-xla": METADATA,
    "jax-tpu": json.dumps(JAX),
    "torch-npu-wheels": json.dumps(INDEX),
}


def run(name: str, text: str) -> Drift:
    (generator,) = [one for one in GENERATORS if one.name == name]
    table = load_table_file(resources.matrices_dir() / f"{generator.table}.toml")
    return drift(generator, text, table, origin="example@1", checked=CHECKED)


@pytest.mark.parametrize("name", [one.name for one in GENERATORS])
def test_new_rows_are_found_and_the_table_stays_faultless(name: str, tmp_path: Path) -> None:
    found = run(name, SOURCES[name])
    assert found.changes
    assert found == run(name, SOURCES[name])
    assert list(found.changes) == sorted(found.changes, key=lambda change: (change.key, change.column))
    root = tmp_path / "matrices"
    shutil.copytree(resources.matrices_dir(), root)
    (root / f"{found.table}.toml").write_text(found.text, encoding="utf-8")
    assert check_tables(root) == ()
    again = drift(
        next(one for one in GENERATORS if one.name == name),
        SOURCES[name],
        load_table_file(root / f"{found.table}.toml"),
        origin="example@1",
        checked=CHECKED,
    )
    assert again.changes == ()
    assert again.text == found.text


def texts(found: Drift) -> list[str]:
    return [str(change) for change in found.changes]


def test_the_build_matrix_gives_sets() -> None:
    pythons = "python 3.11, 3.12, 3.13"
    older = f"packages torch 2.16.0+cu126; toolkit 12.6; {pythons}; index pytorch; variant cu126"
    newer = f"packages torch 2.16.0; toolkit 13.2; toolkit_release 13.2.2; {pythons}"
    assert texts(run("torch-cuda", BUILD_MATRIX)) == [
        f"+ torch-2.16.0-cu126: {older}",
        f"+ torch-2.16.0-cu132: {newer}; label cu132; default True",
    ]
    assert [change.key for change in run("torch-rocm", BUILD_MATRIX).changes] == [
        ("torch-2.16.0-rocm10.0",),
        ("torch-2.16.0-rocm7.14",),
    ]


def test_a_cell_that_differs_is_a_change_and_others_stay() -> None:
    found = run("rocm-members", ROCM)
    (changed,) = [change for change in found.changes if change.column]
    assert (changed.key, changed.column) == (("7.2.3",), "members")
    assert "hip 7.2.53211" in changed.old
    assert "hip 7.2.99999" in changed.new
    added = [change for change in found.changes if not change.column]
    assert added[-1].new == "members torch ==2.15.* | ==2.14.*, hip 8.1.1, miopen 4.0.0, onnxruntime 1.30.0"
    assert ("7.1.0",) in found.unseen


def test_images_are_grouped_by_chip_and_pythons() -> None:
    found = run("cann-images", json.dumps(IMAGES))
    assert [change.new for change in found.changes] == ["python 3.12", "python 3.11, 3.12", "python 3.12"]


def test_a_manifest_gives_members_and_the_driver() -> None:
    (first, *_) = run("neuron-sdk", json.dumps(MANIFEST)).changes
    assert first.key == ("2.34.0",)
    assert "torch-neuronx ==2.13.3.0.9 | ==2.14.3.0.9" in first.new
    assert "dkms_driver 2.32.0.0" in first.new
    assert "something-else" not in first.new


def test_metadata_gives_a_set() -> None:
    (change,) = run("torch-xla", METADATA).changes
    assert change.new.startswith("packages torch-xla 2.10.0, torch 2.10.*, libtpu 0.0.24;")
    assert "jax_for_pallas 0.8.0" in change.new


def test_the_json_of_an_index_is_read_like_metadata() -> None:
    (change,) = run("jax-tpu", json.dumps(JAX)).changes
    assert change.new == "packages jax 0.13.0, libtpu 0.0.55.*, jaxlib 0.13.0; requires_python >=3.12"
    info = {"name": "torch-xla", "version": "2.10.0", "requires_dist": ['libtpu==0.0.24; extra == "tpu"']}
    (change,) = run("torch-xla", json.dumps({"info": info})).changes
    assert change.new.startswith("packages torch-xla 2.10.0, torch 2.10.*, libtpu 0.0.24;")


def test_an_index_page_gives_wheels() -> None:
    found = run("torch-npu-wheels", json.dumps(INDEX))
    assert str(found.changes[0]) == (
        "+ 2.16.0: upload_date 2026-12-01; python_wheels 3.11;3.12; manylinux manylinux_2_28; arch aarch64;x86_64"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torch-cuda", BUILD_MATRIX.replace('"release": ["12.6", "13.2"]', '"release": ["13.2"]')),
        ("rocm-members", ROCM.splitlines()[0] + "\n"),
        ("cann-images", json.dumps({"cann": IMAGES["cann"][:4]})),
        ("neuron-sdk", json.dumps({"neuron_releases": MANIFEST["neuron_releases"][:1]})),
        ("jax-tpu", json.dumps({"info": {"name": "jax", "version": "0.13.0", "requires_dist": None}})),
        ("torch-npu-wheels", json.dumps({"files": INDEX["files"][:4]})),
    ],
)
def test_a_source_too_short_to_be_true_is_refused(name: str, text: str) -> None:
    with pytest.raises(TooShort, match="rows from example@1"):
        run(name, text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("torch-cuda", "def (", "is not Python"),
        ("torch-cuda", "A = 1", "no CURRENT_STABLE_VERSION"),
        ("torch-cuda", BUILD_MATRIX.replace('"2.16.0"', "os.version()"), "is computed"),
        ("rocm-members", "Name,1\n", "not a ROCm compatibility CSV"),
        ("cann-images", "{", "not JSON"),
        ("cann-images", "{}", "no list 'cann'"),
        ("cann-images", '{"cann": [{"cann_chip": "a3"}]}', "an image without 'tags'"),
        ("cann-images", '{"cann": [{"tags": ["latest"]}]}', "image tag 'latest'"),
        ("neuron-sdk", "[]", "no list 'neuron_releases'"),
        ("neuron-sdk", "<html>", "not JSON"),
        ("neuron-sdk", '{"neuron_releases": [{}]}', "a release without 'packages'"),
        ("torch-xla", METADATA.replace("torch_xla", "torch"), "not the METADATA of torch-xla"),
        ("torch-xla", METADATA.replace("absl-py", "absl py =="), "Requires-Dist"),
        ("jax-tpu", "{", "not JSON"),
        ("jax-tpu", "{}", "no 'info'"),
        ("jax-tpu", '{"info": {"name": "jax", "version": "1", "requires_dist": [1]}}', "not a list of texts"),
        ("jax-tpu", METADATA, "not the METADATA of jax"),
        ("torch-npu-wheels", "<html>", "not JSON"),
        ("torch-npu-wheels", "{}", "no list 'files'"),
    ],
)
def test_a_source_of_another_form_is_named(name: str, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        run(name, text)
    assert message in str(caught.value)
    assert caught.value.fix, "an error says how to mend it"


def test_sources_are_files_or_https(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text("{}")
    (tmp_path / "b").write_bytes(b"\xff\xfe\xff")
    assert read_source(str(tmp_path / "m.json")) == "{}"
    for place, message in (
        (str(tmp_path / "none"), "is not a file"),
        ("http://x", "only https"),
        (str(tmp_path / "b"), "UTF-8"),
    ):
        with pytest.raises(BadInput, match=message):
            read_source(place)
    with pytest.raises(OutsideFailed, match="--offline"):
        read_source("https://example.org/x", offline=True)


def test_the_command_shows_and_writes(tmp_path: Path, run_builder: RunBuilder) -> None:
    root = tmp_path / "matrices"
    shutil.copytree(resources.matrices_dir(), root)
    source = tmp_path / "n2-manifest.json"
    source.write_text(json.dumps(MANIFEST))
    arguments = (
        "matrix",
        "refresh",
        "neuron-sdk",
        "--from",
        source,
        "--tables",
        root,
        "--json",
        "--checked",
        "2026-12-07",
    )
    shown = document(run_builder(*arguments), "matrix-refresh")
    assert (shown["verdict"], shown["written"], len(shown["changes"])) == ("changed", False, 3)
    written = document(run_builder(*arguments, "--write"), "matrix-refresh")
    assert written["written"]
    assert document(run_builder(*arguments), "matrix-refresh")["verdict"] == "ok"
    assert "checked = 2026-12-07" in (root / "neuron" / "sdk.toml").read_text()


def test_an_unknown_generator_has_a_hint(run_builder: RunBuilder) -> None:
    found = error(run_builder("matrix", "refresh", "neuron", "--from", "x", "--json"), 2)
    assert "neuron-sdk" in found["fix"]
