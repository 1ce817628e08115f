"""What is asked of the rules: one combination, with None for every part nobody named."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType

from packaging.utils import canonicalize_name

from builder.errors import BadInput, did_you_mean
from builder.matrix.grammar import KEYS as CONDITION_KEYS
from builder.matrix.load import Backend, siblings
from builder.matrix.products import device_row
from builder.matrix.require import parse_requirement
from builder.matrix.systems import normalise_system
from builder.matrix.targets import is_target, normalise_target
from builder.matrix.versions import parse
from builder.names import ARCHES

__all__ = [
    "KEYS",
    "SETTINGS",
    "Question",
    "family_name",
    "known_packages",
    "nameable_packages",
    "parse_question",
]

KEYS = ("toolkit", "driver", "firmware", "device", "arch", "machine", "os", "kernel", "python", "libc")
"""Keys of `matrix explain --set`, besides distribution names."""

SETTINGS = (
    "brand",
    "driver-compat-ids",
    "feature",
    "neff-target",
    "framework-pjrt-api",
    "hsa-override-gfx-version",
    "image",
    "neff-features",
    "nvidia-disable-require",
    "nvidia-require-cuda",
    "plugin-pjrt-api",
    "runtime-compat-id",
    "runtime-neff-features",
    "wheel",
)
"""Further keys: what was read from an image, an artefact or a log; also spelled as the variables they come from."""


_ALIASES = {
    "amdgpu": "driver",
    "cc": "arch",
    "accelerator": "device",
    "accelerator-type": "device",
    "capability": "arch",
    "compute-cap": "arch",
    "compute-capability": "arch",
    "container-toolkit": "nvidia-container-toolkit",
    "cuda-arch": "arch",
    "driver-supports": "driver-compat-ids",
    "gfx": "arch",
    "gpu-driver": "driver",
    "glibc": "libc",
    "gpu": "device",
    "gpu-name": "device",
    "hdk": "driver",
    "host-driver": "driver",
    "instance": "device",
    "instance-type": "device",
    "ipex": "intel-extension-for-pytorch",
    "kernel-driver": "driver",
    "kmd": "driver",
    "kernel-version": "kernel",
    "npu": "device",
    "nvidia-driver": "driver",
    "nvidia-gpu-brand": "brand",
    "nxd-inference": "neuronx-distributed-inference",
    "nxd-training": "neuronx-distributed-training",
    "platform-machine": "machine",
    "product": "device",
    "pytorch": "torch",
    "sm": "arch",
    "soc": "device",
    "target": "arch",
}
"""Other words people use for a key; the name of a backend's toolkit is one for `toolkit`."""

_MACHINES = {
    "aarch64": "aarch64",
    "amd64": "x86_64",
    "arm64": "aarch64",
    "armv8": "aarch64",
    "sbsa": "aarch64",
    "x64": "x86_64",
    "x86-64": "x86_64",
    "x86_64": "x86_64",
    **{name: name for name in ("armv7l", "i686", "ppc64le", "riscv64", "s390x")},
}
"""Machine architectures as kernels, container engines and makers call them (sbsa: NVIDIA's Arm servers)."""

_DRIVER_PACKAGES = frozenset({"amdgpu-dkms", "aws-neuronx-dkms"})
"""Packages whose version is that of the kernel driver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One combination of versions and a machine."""

    toolkit: str | None = None
    driver: str | None = None
    firmware: str | None = None
    device: str | None = None
    """Product name."""
    target: str | None = None
    """Device target: sm_90, gfx942, trn2 …"""
    features: str | None = None
    """Target features of an AMD device as its target ID spells them: `sramecc+:xnack-`."""
    machine: str | None = None
    """x86_64 or aarch64."""
    os: str | None = None
    """`ubuntu 22.04`."""
    kernel: str | None = None
    python: str | None = None
    libc: str | None = None
    """glibc version, or `musl`."""
    packages: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Distribution name to exact version."""
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Keys of `SETTINGS` to what was read."""
    override_of: str | None = None
    """Node class whose operator recorded the override of the settings as their own risk."""

    def has(self, key: str) -> bool:
        """Whether a part is known; `packages` asks for any, and an operating system tells its C library."""
        return bool(getattr(self, key)) or (key == "libc" and self.os is not None)


@lru_cache(maxsize=64)
def known_packages(backend: Backend) -> frozenset[str]:
    """Every distribution the sets of a backend name."""
    return frozenset(name for row in backend.rows("set") for name in row.packages())


@lru_cache(maxsize=64)
def nameable_packages(backend: Backend) -> frozenset[str]:
    """Every distribution some table of a backend can say something about."""
    names = set(known_packages(backend))
    for row in backend.rows("release"):
        names.update(row.mapping("members"))
    for row in backend.rows("pins"):
        names.update((row.text("package") or "", *row.mapping("requires")))
    for row in backend.rows("limit"):
        names.update(key for key in (*row.mapping("when"), *row.mapping("allow")) if key not in CONDITION_KEYS)
    names.update(row.text("package") or "" for kind in ("about", "forward-compat") for row in backend.rows(kind))
    if "forward-compat" in backend.kinds:
        names.add("cuda-compat")
    if any(row.text("cudnn") for row in backend.rows("set")):
        names |= {"cudnn", "nccl", "triton"}
    return frozenset(names | {family_name(name) for name in names})


@lru_cache(maxsize=4096)
def family_name(name: str) -> str:
    """A package without the spelling of its CUDA major or part: `nvidia-cudnn-cu13` → `cudnn`,
    `tensorrt-cu13-bindings` → `tensorrt`."""
    if name.startswith("nvidia-"):
        return re.sub(r"^nvidia-(.*?)(?:-cu\d+)?$", r"\1", name)
    return re.sub(r"^(tensorrt(?:-rtx)?)(?:-cu\d+)?(?:-bindings|-libs)?$", r"\1", name)


def parse_question(settings: Mapping[str, str], backend: Backend) -> Question:
    """The question of `--set KEY=VALUE …`; `arch` takes a machine architecture or a device target.

    `BadInput` for an unknown key, a package the tables do not know, or a value that cannot be such a thing.
    """
    parts: dict[str, str] = {}
    packages: dict[str, str] = {}
    extra: dict[str, str] = {}
    known = nameable_packages(backend) | {name for index in backend.spec.indexes for name in index.packages}
    words = tuple(word for word in (backend.spec.toolkit or "").lower().split() if word != "software")
    titles = {*words, "-".join(words)}
    for name, raw in settings.items():
        if name[-1:] in tuple("<>~!"):
            raise _no_range(f"{name}={raw}")
        key = _key(name, known, titles)
        value = raw.strip().removeprefix("=").strip()  # torch==2.9.0, as in a requirements file
        if not value:
            raise BadInput(f"{key} has no value", fix=f"write {key}=VALUE, or leave it out")
        if key not in KEYS:
            name = str(canonicalize_name(key))
            if name in SETTINGS:
                if name == "nvidia-require-cuda":
                    parse_requirement(value)  # an error of its form is one of the question
                extra[name] = value
                continue
            if name in _DRIVER_PACKAGES and "driver" not in settings:
                parts["driver"] = _driver(value)
                continue
            if name not in known and not _is_distribution(name, value, known, backend):
                what = f"unknown key {key!r} for backend {backend.name}"
                raise BadInput(what, why="neither a key nor a package of its tables", fix=_meant(key, known))
            packages[name] = _version(name, value)
        elif key == "toolkit":
            parts[key] = _toolkit(value, backend)
        elif key == "driver":
            parts[key] = _driver(value)
        elif key in ("arch", "machine"):
            machine = _MACHINES.get(value.lower(), value)
            if machine in _MACHINES.values():
                parts["machine"] = machine
            elif key == "machine":
                raise BadInput(f"unknown architecture {value!r}", fix=did_you_mean(value, ARCHES))
            else:
                parts.update(_target(value, backend, named=any(_key(k, known, titles) == "device" for k in settings)))
                if backend.spec.targets == "gfx" and ":" in value:
                    parts["features"] = _features(value)
        elif key == "libc":
            parts[key] = _libc(value)
        elif key == "os":
            parts[key] = normalise_system(value)
        elif key == "python":
            parts[key] = _python(value)
        elif key == "kernel" and re.search(r"\d", value) is None:
            raise BadInput(f"kernel={value}: not a version", fix="what uname -r prints, e.g. 6.8.0-45-generic")
        else:
            parts[key] = value
    if "microsoft" in parts.get("kernel", "").lower():
        parts["os"] = "wsl"
    return Question(**parts, packages=MappingProxyType(packages), settings=MappingProxyType(extra))


def _is_distribution(name: str, value: str, known: Collection[str], backend: Backend) -> bool:
    """Whether a name no table of the backend has is a distribution all the same, rather than a slip of the pen."""
    if parse(value) is None or re.fullmatch(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", name) is None:
        return False
    if any(name in nameable_packages(other) for other in siblings(backend)):
        return True
    words = (*KEYS, *SETTINGS, *_ALIASES, *known)
    return not get_close_matches(name, words, n=1, cutoff=0.75)


def _key(name: str, known: Collection[str], titles: Collection[str]) -> str:
    """The key somebody means: in any case, with `_` or `-`, with `_version` behind it, or by another word for it."""
    text = name.strip().lower().replace("_", "-")
    if canonicalize_name(name) in known and text not in KEYS and text not in _ALIASES:
        return name
    for word in (text, text.removesuffix("-version")):
        found = "toolkit" if word in titles else _ALIASES.get(word, word)
        if found in KEYS or found in SETTINGS or found in known:
            return found
    return name


def _meant(key: str, known: Collection[str]) -> str:
    """The names a slip of the pen comes near; without one the keys alone, for the packages are some hundred."""
    close = get_close_matches(key, sorted({*KEYS, *SETTINGS, *known}), n=2, cutoff=0.6)
    if close:
        return did_you_mean(key, close)
    return f"keys: {', '.join(KEYS)}, {', '.join(SETTINGS)}; or a distribution by its name"


def _no_range(text: str) -> BadInput:
    why = "one combination is judged, and a range is many"
    return BadInput(
        f"{text}: a range", why=why, fix="one exact version; matrix solve --want 'torch>=2.9' lists what is in a range"
    )


def _version(name: str, value: str) -> str:
    if re.match(r"[<>~!=]|.*[,*]", value):
        raise _no_range(f"{name}={value}")
    if parse(value) is None:
        raise BadInput(f"{name}={value}: not a version", fix=f"one exact version, e.g. {name}=2.13.0")
    return value


def _toolkit(value: str, backend: Backend) -> str:
    """`12.8`, `cu128`, `CUDA 12.8.1`, `CUDA 12.8 Update 1`, `V12.8.93` (nvcc), `rocm7.2`, `9.1.X` → the number."""
    if backend.spec.toolkit is None:
        packages = ", ".join(sorted(known_packages(backend)))
        raise BadInput(f"backend {backend.name} has no toolkit", fix=f"name a package instead: {packages}")
    if re.match(r"[<>~!=]", value):
        raise _no_range(f"toolkit={value}")
    if match := re.fullmatch(r"cu(\d\d)(\d+)", value, re.IGNORECASE):
        return f"{match[1]}.{match[2]}"
    if match := re.search(r"\brelease (\d+(?:\.\d+)+)", value) or re.fullmatch(r"V(\d+\.\d+)\.\d\d+", value):
        return match[1]  # the line of nvcc --version, and the number of the compiler at its end
    bare = re.sub(r"^[A-Za-z ]+[-_ ]?(?=\d)", "", value)
    if match := re.fullmatch(r"(\d+\.\d+)(?:\.0)?[ -]?(?:GA|(?:update|u)[ -]?(\d))", bare, re.IGNORECASE):
        return f"{match[1]}.{match[2] or 0}"
    bare = re.sub(r"(?<=\d)(?:\.(?:x|\*))+$", "", bare, flags=re.IGNORECASE)
    if not re.match(r"\d", bare) or parse(bare.partition("_")[0]) is None:
        raise BadInput(f"toolkit={value}: not a version", fix="a release of the toolkit, e.g. 12.8 or 12.8.1")
    return bare


def _driver(value: str) -> str:
    """The number in what a vendor's tool prints; an error message of the tool is said to be one.

    The first dotted number that is no part of a word: neither `x86_64` of the kernel module's banner nor the epoch of
    a package version (`1:6.4.43483-…`) is the driver's. Windows prefixes NVIDIA's number and shifts its point:
    `32.0.15.6094` of the device manager is 560.94.
    """
    if windows := re.fullmatch(r"\d\d\.\d+\.1(\d)\.(\d\d)(\d\d)", value):
        return f"{windows[1]}{windows[2]}.{windows[3]}"
    if re.match(r"[<>~!=]", value) or re.fullmatch(r"[\d.]+\+", value):
        raise _no_range(f"driver={value}")
    dotted = re.search(r"(?<![\w.])\d+(?:\.[0-9A-Za-z]+)+", value)
    match = dotted or re.search(r"\d+(?:\.[0-9A-Za-z]+)*", value)
    if "failed" in value.lower() or match is None:
        raise BadInput(
            f"driver={value!r} is no version",
            why="the vendor's tool did not reach a driver" if "failed" in value.lower() else "there is no number in it",
            fix="load the kernel driver first, or give the version it will have, e.g. driver=580.65.06",
        )
    return match[0]


def _target(value: str, backend: Backend, *, named: bool) -> dict[str, str]:
    """A device target, or the product somebody wrote in its place where no device was named beside it."""
    scheme = backend.spec.targets
    target = normalise_target(value, scheme)
    known = {(row.text("target") or "").casefold() for row in backend.rows("device")}
    if not named and target.casefold() not in known and device_row(backend, value) is not None:
        return {"device": value}
    if not is_target(target, scheme):
        example = "9.0 or sm_90" if scheme == "sm" else "gfx942"
        raise BadInput(
            f"arch={value}: neither a machine architecture, nor a device target, nor a product",
            fix=f"x86_64, aarch64, a target such as {example}; or device=PRODUCT",
        )
    return {"target": target}


def _features(value: str) -> str:
    """`sramecc+:xnack-` of a target ID (LLVM AMDGPU usage guide, "Target ID": features in alphabetical order)."""
    features = value.lower().split(":")[1:]
    if not all(re.fullmatch(r"(?:sramecc|xnack)[+-]", feature) for feature in features):
        raise BadInput(f"arch={value}: not a target ID", fix="e.g. gfx90a:sramecc+:xnack-")
    return ":".join(sorted(features))


def _libc(value: str) -> str:
    if "musl" in value.lower():
        return "musl"
    match = re.search(r"\d+\.\d+", value)
    if match is None:
        raise BadInput(f"libc={value}: not a C library", fix="a glibc version such as 2.36, or musl")
    return match[0]


def _python(value: str) -> str:
    match = re.fullmatch(
        r"(?:cp|cpython|py|python)?[ -]?(\d)\.?(\d+)(?:\.(?:\d+(?:(?:a|b|rc)\d+)?|\*))?(t?)", value, re.IGNORECASE
    )
    if match is None:
        raise BadInput(f"python={value}: not a Python version", fix="major.minor, e.g. 3.12")
    return f"{match[1]}.{match[2]}{match[3].lower()}"
