"""A value of every property, and another one: what tests change one at a time."""

from __future__ import annotations

from builder.cache import EngineKey, EngineKind, engine_key
from builder.names import Digest

MODEL = Digest.of(b"weights and configuration")
OTHER_MODEL = Digest.of(b"other weights")

SAMPLES: dict[str, tuple[str, str]] = {
    "model": (str(MODEL), str(OTHER_MODEL)),
    "compute-capability": ("8.6", "8.9"),
    "target": ("sm_90", "sm_100"),
    "gfx": ("gfx942", "gfx950"),
    "soc": ("Ascend910B1", "Ascend310P3"),
    "platform": ("linux-x86_64", "linux-aarch64"),
    "device": ("NVIDIA A10", "NVIDIA A40"),
    "device-memory": ("24576", "49152"),
    "driver": ("570.86.15", "550.54.14"),
    "driver-branch": ("570", "550"),
    "multiprocessors": ("72", "84"),
    "cpu-level": ("x86-64-v3", "x86-64-v2"),
    "cpu-threads": ("16", "8"),
    "threads": ("16", "8"),
    "instance": ("inf2.xlarge", "inf2.8xlarge"),
    "topology": ("2x2", "2x2x4"),
    "warp-size": ("64", "32"),
    "tensorrt": ("10.9.0.34", "10.8.0.43"),
    "tensorrt-rtx": ("1.4.0", "1.3.0"),
    "torch-tensorrt": ("2.9.0", "2.8.0"),
    "torch": ("2.9.0", "2.10.0"),
    "torch-npu": ("2.8.0.post2", "2.9.0"),
    "torch-neuronx": ("2.8.0.2.10.16998", "2.9.0.2.15.32035"),
    "triton": ("3.5.0", "3.4.0"),
    "cuda": ("12.8", "11.8"),
    "toolkit": ("12.8", "11.8"),
    "rocm": ("7.1.0", "6.4.1"),
    "cann": ("8.5.0", "8.3.RC1"),
    "bisheng": ("of-cann", "15.0.5"),
    "ptxas": ("release 12.8, V12.8.93", "release 12.9, V12.9.86"),
    "compiler": ("gcc 12.2.0", "none"),
    "python": ("3.11.9", "3.12.4"),
    "neuronx-cc": ("2.21.33363.0", "2.26.6360.0"),
    "migraphx": ("2.13.0", "2.14.0"),
    "openvino": ("2026.1.0", "2025.4.1"),
    "onnxruntime": ("1.23.0", "1.22.0"),
    "flashinfer": ("0.5.0", "0.4.0"),
    "vllm": ("0.20.1", "0.20.2"),
    "jax": ("0.8.1", "0.8.0"),
    "jaxlib": ("0.8.1", "0.8.0"),
    "platform-version": ("libtpu 0.0.24", "libtpu 0.0.23"),
    "precision": ("fp16", "fp8 fp16"),
    "shapes": ("1x3x224x224 8x3x224x224", "1x3x224x224"),
    "flags": ("--sparsity", "--sparsity --tf32=off"),
    "settings": ("disable_tf32=true", "disable_tf32=false"),
    "options": ("hint=latency", "hint=throughput"),
    "config": ("dtype=bfloat16", "dtype=float16"),
    "mode": ("mode=max-autotune", "default"),
    "plugins": ("nms:1", "nms:2"),
    "kernels": ("vllm:0.20.1", "vllm:0.20.2"),
    "ranks": ("tp2-pp1", "tp4-pp1"),
    "replica-groups": ("0,1", "0,1,2,3"),
    "tuning": ("on", "off"),
    "providers": ("cpuexecutionprovider", "openvinoexecutionprovider"),
    "level": ("all", "basic"),
    "optimization-level": ("3", "5"),
    "compression": ("zstandard", "zlib"),
    "container": ("1", "2"),
    "format": ("7", "8"),
    "serialization": ("228", "226"),
    "hardware-compatibility": ("none", "ampere-plus"),
    "version-compatible": ("off", "on"),
    "features": ("0x1f", "0x10f"),
    "neff-version": ("2.0", "3.0"),
    "runtime-compat": ("3", "6"),
    "arch-list": ("sm_80 sm_86 sm_89 sm_90 sm_100", "sm_80 sm_86 sm_89 sm_90 sm_100 sm_120"),
    "XLA_FLAGS": ("--xla_gpu_autotune_level=2", "--xla_gpu_autotune_level=4"),
    "LIBTPU_INIT_ARGS": ("", "--xla_tpu_enable_async_collective_fusion=true"),
}
"""Property to the value an engine has, and the value a machine wants instead."""

OF_KIND: dict[tuple[str, str], tuple[str, str]] = {
    ("neff", "target"): ("trn2", "trn1"),
    ("neff", "driver"): ("2.24.7", "2.21.37"),
    ("neff", "flags"): ("--model-type=transformer", "--model-type=unet-inference"),
    ("jax-xla", "target"): ("v5e", "v6e"),
    ("openvino", "device"): ("cpu", "gpu"),
    ("openvino", "target"): ("x86-64-v3", "x86-64-v4"),
    ("openvino", "driver"): ("none", "25.18.33578"),
    ("onnxruntime-optimised", "cpu-level"): ("x86-64-v3", "x86-64-v4"),
    ("om", "precision"): ("allow_fp32_to_fp16", "force_fp32"),
    ("mxr", "tuning"): ("off", "on"),
    ("cann-op", "tuning"): ("none", "bank-2"),
}


def sample(kind: EngineKind, name: str) -> tuple[str, str]:
    """The two values of a property in this kind."""
    if kind.properties[name].group == "env" and name not in SAMPLES:
        return "", "1"
    return OF_KIND.get((kind.name, name)) or SAMPLES[name]


def stated(kind: EngineKind) -> dict[str, str]:
    """Every property of a kind with the value an engine has."""
    return {name: sample(kind, name)[0] for name in kind.properties}


def key_of(kind: EngineKind, **changed: str | None) -> EngineKey:
    """The key of an engine with everything stated; a property given as None is left out. `_` stands for `-`."""
    given = {name if name.isupper() else name.replace("_", "-"): value for name, value in changed.items()}
    values = {**stated(kind), **given}
    return engine_key(kind, properties={name: value for name, value in values.items() if value is not None})
