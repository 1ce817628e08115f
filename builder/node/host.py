"""What any Linux machine says of itself: CPU, memory, kernel, system, C library, container runtime."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.errors import CannotTell, did_you_mean
from builder.names import ARCHES, Arch

__all__ = ["HostFacts", "cpu_level", "parse_cpuinfo", "parse_meminfo", "parse_os_release", "read_host"]

_X86_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("x86-64-v1", frozenset({"cmov", "cx8", "fpu", "fxsr", "mmx", "sse", "sse2"})),
    ("x86-64-v2", frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})),
    ("x86-64-v3", frozenset({"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"})),
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
)
"""Flags of /proc/cpuinfo each level adds (x86-64 psABI, "Micro-Architecture Levels"; the kernel calls SSE3 pni and
LZCNT abm)."""

_ARM_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("armv8.0-a", frozenset({"fp", "asimd"})),
    ("armv8.1-a", frozenset({"atomics", "asimdrdm", "crc32"})),
    ("armv8.2-a", frozenset({"dcpop"})),
    ("armv8.3-a", frozenset({"jscvt", "fcma", "lrcpc"})),
    ("armv8.4-a", frozenset({"asimddp", "dit", "flagm", "uscat", "ilrcpc"})),
)
"""Features of /proc/cpuinfo each level adds (Linux Documentation/arch/arm64/elf_hwcaps.rst)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """A machine without its accelerators."""

    arch: Arch
    cpu: str | None
    """Model name as /proc/cpuinfo has it."""
    cpu_level: str | None
    cpus: int
    memory_mib: int | None
    kernel: str
    os: str | None
    """`<ID> <VERSION_ID>`."""
    glibc: str | None
    runtime: str | None
    """`docker 20.10.24`, or None when there is none on PATH."""


def parse_cpuinfo(text: str) -> tuple[str | None, frozenset[str]]:
    """Model name and flags of the first processor of /proc/cpuinfo (`flags` on x86, `Features` on arm64)."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags") or fields.get("Features") or ""
    return fields.get("model name"), frozenset(flags.split())


def cpu_level(arch: Arch, flags: Iterable[str]) -> str | None:
    """The highest level whose flags, and those of all levels below, are present; None when not even the first is."""
    have = frozenset(flags)
    level = None
    for name, needed in _X86_LEVELS if arch == "x86_64" else _ARM_LEVELS:
        if not needed <= have:
            break
        level = name
    return level


def parse_meminfo(text: str) -> int | None:
    """MemTotal of /proc/meminfo, in MiB."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) // 1024 if match else None


def parse_os_release(text: str) -> str | None:
    """`<ID> <VERSION_ID>` of an os-release file; only the ID where there is no version (rolling systems)."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"\s*([A-Z_0-9]+)=(?:\"([^\"]*)\"|'([^']*)'|(\S*))\s*", line)
        if match:
            fields[match[1]] = match[2] or match[3] or match[4] or ""
    name = fields.get("ID")
    return f"{name} {fields['VERSION_ID']}" if name and fields.get("VERSION_ID") else name or None


def parse_docker_version(text: str) -> str | None:
    """`docker 20.10.24` from `Docker version 20.10.24+dfsg1, build 297e128`."""
    match = re.search(r"version (\d+(?:\.\d+)+)", text)
    return f"docker {match[1]}" if match else None


def machine_arch(machine: str) -> Arch:
    """`uname -m` as an architecture; `CannotTell` for one images are not made for."""
    for arch in ARCHES:
        if machine == arch:
            return arch
    raise CannotTell(f"no images are made for {machine!r} machines", fix=did_you_mean(machine, ARCHES))


def read_host(overrides: Mapping[str, str]) -> HostFacts:
    """Read this machine. `overrides` may name `arch` where `uname -m` is not to be believed."""
    arch = machine_arch(overrides.get("arch") or platform.machine())
    model, flags = parse_cpuinfo(_text("/proc/cpuinfo"))
    return HostFacts(
        arch=arch,
        cpu=model,
        cpu_level=cpu_level(arch, flags),
        cpus=os.cpu_count() or 1,
        memory_mib=parse_meminfo(_text("/proc/meminfo")),
        kernel=platform.release(),
        os=parse_os_release(_text("/etc/os-release") or _text("/usr/lib/os-release")),
        glibc=_glibc(),
        runtime=_runtime(),
    )


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _glibc() -> str | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    return text.removeprefix("glibc ") or None


def _runtime() -> str | None:
    docker = shutil.which("docker")
    if docker is None:
        return None
    try:
        done = subprocess.run([docker, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_docker_version(done.stdout)
