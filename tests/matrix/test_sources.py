"""Every table of the material the facts were gathered from stands in matrices/: so many rows there, so many here.

The counts are those of the gathered tables. A fact that is dropped, or a table that is forgotten, is missed here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builder import resources
from builder.audit.audit import provided_by
from builder.audit.tables import load_tables
from builder.matrix.load import load_table_file
from builder.matrix.tables import Row, Table

Counter = Callable[[Table], int]


def rows(table: Table) -> int:
    return len(table.rows)


def entries(column: str) -> Counter:
    """Facts that stand as entries of one cell: the packages a wheel requires."""
    return lambda table: sum(len(row.mapping(column)) or len(row.texts(column) or ()) for row in table.rows)


def distinct(key: Callable[[Row], object]) -> Counter:
    """Facts that are one in the source and several rows here, by patch release or chip."""
    return lambda table: len({key(row) for row in table.rows})


def _minor_and_variant(row: Row) -> tuple[str, str]:
    name = row.text("set") or ""
    version, _, variant = name.removeprefix("torch-").rpartition("-")
    return ".".join(version.split(".")[:2]), variant


def _rocm_release(row: Row) -> str:
    """The table names patch releases from 2.6 on, and 1.13.1."""
    version = row.packages()["torch"].partition("+")[0]
    major, minor, _ = version.split(".")
    return version if (int(major), int(minor)) >= (2, 6) or major == "1" else f"{major}.{minor}.x"


COUNTS: tuple[tuple[str, int, str, Counter], ...] = (
    ("cann", 75, "npu/torch", rows),
    ("cann-container", 20, "npu/container", rows),
    ("cann-hdk", 11, "npu/hdk", rows),
    ("cann-image-rules", 13, "npu/image-rules", rows),
    ("cann-images", 87, "npu/base", rows),
    ("cann-mindie", 4, "npu/mindie", rows),
    ("cann-os", 12, "npu/os", rows),
    ("cann-package-mix", 6, "npu/package-mix", rows),
    ("cann-soc", 29, "npu/device", rows),
    ("cann-torchnpu-compat", 9, "npu/torch-products", rows),
    ("cann-torchnpu-wheels", 67, "npu/torch-wheels", rows),
    ("cann-triton", 7, "npu/triton", rows),
    ("cann-vllm", 45, "npu/vllm", rows),
    ("container-toolkit", 51, "cuda/container", rows),
    ("cuda-arch", 24, "cuda/target", rows),
    ("cuda-arch-gpus", 25, "cuda/device", rows),
    ("cuda-arch-rules", 9, "cuda/target-rules", rows),
    ("cuda-driver", 65, "cuda/driver-floor", rows),
    ("cuda-driver-branches", 25, "cuda/driver-branch", rows),
    ("cuda-driver-compat-kinds", 4, "cuda/driver-compat-kinds", rows),
    ("cuda-driver-forward-compat", 13, "cuda/driver-forward-compat", rows),
    ("cuda-driver-forward-compat-rules", 10, "cuda/driver-forward-compat-rules", rows),
    ("cuda-driver-minor-compat", 3, "cuda/driver-family", rows),
    ("cuda-ptx-target-matrix", 12, "cuda/ptx-targets", rows),
    ("cuda-toolkit-components", 425, "cuda/components", entries("components")),
    ("cudnn", 6, "cuda/cudnn", rows),
    ("gaudi", 13, "hpu/releases", rows),
    ("hpu-gaudi", 16, "hpu/torch", rows),
    ("hpu-gaudi-rules", 5, "hpu/rules", rows),
    ("jax-cuda", 3, "cuda/jax", rows),
    ("neuron", 34, "neuron/sdk", rows),
    ("neuron-cache", 14, "neuron/cache", rows),
    ("neuron-container", 5, "neuron/container", rows),
    ("neuron-images", 50, "neuron/base", rows),
    ("neuron-instances", 6, "neuron/device", rows),
    ("neuron-rules", 19, "neuron/rules", rows),
    ("others, platforms of their own", 9, "*/platform-facts", rows),
    ("others, translation layers", 2, "rocm/platform-facts", rows),
    ("python-abi", 15, "common/manylinux", rows),
    ("python-abi-distros", 18, "common/os", rows),
    ("python-abi-rules", 7, "common/wheel-rules", rows),
    ("rocm", 27, "rocm/releases-full", rows),
    ("rocm-gfx", 34, "rocm/device", rows),
    ("rocm-gfx-rules", 11, "rocm/target-rules", rows),
    ("rocm-gpu-os-limits", 13, "rocm/gpu-os-limits", rows),
    ("rocm-images", 11, "rocm/images", rows),
    ("rocm-jax", 14, "rocm/jax-pins", rows),
    ("rocm-kmd", 16, "rocm/driver-window", rows),
    ("rocm-os", 14, "rocm/os", rows),
    ("rocm-release-scheme", 16, "rocm/version-scheme", rows),
    ("rocm-releases", 21, "rocm/release", rows),
    ("rocm-torch", 21, "rocm/torch", distinct(_rocm_release)),
    ("rocm-torch-arch", 13, "rocm/torch-targets", rows),
    ("tensorrt", 17, "cuda/tensorrt", rows),
    ("tensorrt-rtx", 10, "cuda/tensorrt-rtx", rows),
    ("tensorrt-rules", 16, "cuda/tensorrt-rules", rows),
    ("tensorrt-wheels", 5, "cuda/tensorrt-wheels", rows),
    ("torch-cuda", 50, "cuda/torch", distinct(_minor_and_variant)),
    ("torch-platform", 28, "cuda/torch-platform", rows),
    ("torch-requires-dist", 710, "cuda/torch-pins", entries("requires")),
    ("torch-tensorrt", 8, "cuda/torch-tensorrt", rows),
    ("torch-wheel-cubins", 11, "cuda/torch-cubins", rows),
    ("tpu", 12, "tpu/frameworks", rows),
    ("tpu-generations", 7, "tpu/device", rows),
    ("tpu-jax-libtpu", 32, "tpu/jax", rows),
    ("tpu-rules", 8, "tpu/rules", rows),
    ("wheel-variant-properties", 9, "common/wheel-variants", rows),
    ("xpu", 11, "xpu/torch-facts", rows),
    ("xpu-ipex", 16, "xpu/ipex", rows),
    ("xpu-rules", 4, "xpu/rules", rows),
)


@pytest.mark.parametrize(("source", "count", "name", "counter"), COUNTS, ids=[line[0] for line in COUNTS])
def test_every_row_of_a_source_table_is_here(source: str, count: int, name: str, counter: Counter) -> None:
    paths = sorted(resources.matrices_dir().glob(f"{name}.toml"))
    assert paths, name
    assert sum(counter(load_table_file(path)) for path in paths) >= count


NO_LIBRARIES = 13
"""Names gathered beside these that are words on kernel modules and device files ("(kernel module amdgpu, /dev/kfd,
/dev/dri)" of ROCm, and the like of Neuron and Gaudi): they say that no library comes from the host."""


def test_every_library_name_is_in_the_policy() -> None:
    """The 275 library names of the 288 that were gathered belong to the backend they were gathered for.

    One of them stands for four names without a number. A name that two makers use is at home in the images of both.
    """
    lines = Path(__file__).with_name("sonames.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) - 3 + NO_LIBRARIES == 288
    tables = load_tables()
    for line in lines:
        backend, _, name = line.partition(" ")
        library = tables.library(name)
        assert library is not None, line
        at_home = provided_by((), backend) if backend in resources.backends() else {}
        assert library.backend == backend or library.stem in at_home, line


def test_a_gathered_row_that_is_no_fact_of_its_own_is_told() -> None:
    """Two rows say where another table is, or a rule that the rows hold already."""
    counted = {line[0]: line[1] for line in COUNTS}
    assert counted["hpu-gaudi-rules"] == 6 - 1  # "sibling table: gaudi.csv"
    assert counted["rocm-jax"] == 15 - 1  # "plugin requires the pjrt package of exactly the same version"
    pins = load_table_file(resources.matrices_dir() / "rocm" / "jax-pins.toml")
    assert all(f"=={row.text('version')}" in row.mapping("requires").values() for row in pins.rows)
