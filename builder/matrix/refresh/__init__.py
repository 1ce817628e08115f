"""Generators that turn the makers' machine-readable sources into rows."""

from builder.matrix.refresh.cann import image_rows
from builder.matrix.refresh.fetch import read_source
from builder.matrix.refresh.index import torch_npu_rows
from builder.matrix.refresh.merge import drift
from builder.matrix.refresh.metadata import jax_tpu_rows, torch_xla_rows
from builder.matrix.refresh.neuron import release_rows
from builder.matrix.refresh.pytorch import cuda_rows, rocm_rows
from builder.matrix.refresh.rocm import member_rows
from builder.matrix.refresh.values import Change, Drift, Generator, TooShort

__all__ = ["GENERATORS", "Change", "Drift", "Generator", "TooShort", "drift", "read_source"]

_TORCH = ("packages", "toolkit", "toolkit_release", "python", "index", "variant", "label", "default")

GENERATORS: tuple[Generator, ...] = (
    Generator(
        name="torch-cuda",
        table="cuda/torch",
        title="pytorch/test-infra tools/scripts/generate_binary_build_matrix.py",
        minimum=2,
        columns=_TORCH,
        rows=cuda_rows,
    ),
    Generator(
        name="torch-rocm",
        table="rocm/torch",
        title="pytorch/test-infra tools/scripts/generate_binary_build_matrix.py",
        minimum=1,
        columns=_TORCH,
        rows=rocm_rows,
    ),
    Generator(
        name="rocm-members",
        table="rocm/release-members",
        title="ROCm compatibility matrix (CSV)",
        minimum=3,
        columns=("members",),
        rows=member_rows,
    ),
    Generator(
        name="cann-images",
        table="npu/base",
        title="Ascend/cann-container-image arguments (JSON)",
        minimum=3,
        columns=("os", "python"),
        rows=image_rows,
    ),
    Generator(
        name="neuron-sdk",
        table="neuron/sdk",
        title="aws-neuron/aws-neuron-sdk src/helperscripts/n2-manifest.json",
        minimum=3,
        columns=("members", "dkms_driver"),
        rows=release_rows,
    ),
    Generator(
        name="torch-xla",
        table="tpu/torch-xla",
        title="torch-xla METADATA",
        minimum=1,
        columns=("packages", "jax_for_pallas"),
        rows=torch_xla_rows,
    ),
    Generator(
        name="jax-tpu",
        table="tpu/jax",
        title="jax METADATA",
        minimum=1,
        columns=("packages", "requires_python"),
        rows=jax_tpu_rows,
    ),
    Generator(
        name="torch-npu-wheels",
        table="npu/torch-wheels",
        title="package index, torch-npu",
        minimum=5,
        columns=("upload_date", "python_wheels", "manylinux", "arch"),
        rows=torch_npu_rows,
    ),
)
"""By name; each owns some columns of one table."""
