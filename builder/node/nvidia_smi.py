"""nvidia-smi: the machine-readable output of NVIDIA's own tool.

Source: `nvidia-smi --help-query-gpu` (name, driver_version, memory.total, compute_cap, vbios_version) and the DTD
nvsmi_device of `nvidia-smi -q -x`.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from builder.errors import CannotTell

__all__ = ["FIELDS", "Gpu", "NvidiaFacts", "parse_query", "parse_xml", "read_nvidia"]

FIELDS = ("name", "driver_version", "memory.total", "compute_cap", "vbios_version")
"""What is asked with --query-gpu."""

_TIMEOUT = 60
"""Seconds; the first call on a machine without persistence mode loads the driver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One device."""

    name: str
    memory_mib: int | None
    compute_capability: str | None
    """`9.0`; None where the tool is too old to say."""
    vbios: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaFacts:
    """Driver and devices."""

    driver: str
    gpus: tuple[Gpu, ...]


def parse_query(text: str) -> NvidiaFacts:
    """`--query-gpu=FIELDS --format=csv,noheader`, one line a device; `CannotTell` for anything else."""
    gpus = []
    driver = ""
    for line in csv.reader(io.StringIO(text.strip()), skipinitialspace=True):
        if len(line) != len(FIELDS):
            raise _not_understood(text)
        name, driver, memory, capability, vbios = (value.strip() for value in line)
        gpus.append(
            Gpu(
                name=name,
                memory_mib=_mib(memory),
                compute_capability=capability if re.fullmatch(r"\d+\.\d+", capability) else None,
                vbios=_known(vbios),
            )
        )
    if not gpus:
        raise CannotTell("nvidia-smi lists no devices", why="its output was empty", fix="is a GPU attached?")
    return NvidiaFacts(driver=driver, gpus=tuple(gpus))


def parse_xml(text: str) -> NvidiaFacts:
    """`nvidia-smi -q -x`; `CannotTell` when it is not that. The report names no compute capability."""
    if "<!ENTITY" in text:
        raise _not_understood(text)
    try:
        # The tool's own report names an external DTD and no entities; the parser fetches neither.
        log = ET.fromstring(text)  # noqa: S314
    except ET.ParseError as error:
        raise _not_understood(text) from error
    driver = log.findtext("driver_version") or ""
    gpus = tuple(
        Gpu(
            name=gpu.findtext("product_name") or "",
            memory_mib=_mib(gpu.findtext("fb_memory_usage/total") or ""),
            compute_capability=None,
            vbios=_known(gpu.findtext("vbios_version") or ""),
        )
        for gpu in log.iter("gpu")
    )
    if not driver or not gpus:
        raise _not_understood(text)
    return NvidiaFacts(driver=driver, gpus=gpus)


def _mib(text: str) -> int | None:
    match = re.fullmatch(r"(\d+)(?: MiB)?", text.strip())
    return int(match[1]) if match else None


def _known(text: str) -> str | None:
    return None if not text or text.startswith(("[", "N/A")) else text


def _not_understood(text: str) -> CannotTell:
    first = text.strip().splitlines()[0] if text.strip() else "nothing"
    return CannotTell("nvidia-smi did not answer as documented", why=f"it said: {first}")


def failure(text: str, code: int) -> CannotTell:
    """What a failed nvidia-smi means, from its own words."""
    first = text.strip().splitlines()[0] if text.strip() else f"exit code {code}"
    if "couldn't communicate with the NVIDIA driver" in text or "has failed" in text:
        fix = "load the kernel module (modprobe nvidia) or install the driver"
        return CannotTell("the NVIDIA driver does not answer", why=first, fix=fix)
    if "version mismatch" in text:
        fix = "reboot, or reload the kernel module: user space was updated under a running driver"
        return CannotTell("the NVIDIA kernel module and its library differ", why=first, fix=fix)
    if "No devices were found" in text:
        return CannotTell(
            "no NVIDIA device was found", why=first, fix="is the GPU visible to this machine or container?"
        )
    return CannotTell("nvidia-smi failed", why=first, fix="run nvidia-smi by hand")


def read_nvidia() -> NvidiaFacts:
    """Ask nvidia-smi on PATH; `CannotTell` says why it could not."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        fix = "run this where the NVIDIA driver is installed, or set BUILDER_NODE_DRIVER and BUILDER_NODE_DEVICE"
        raise CannotTell("no NVIDIA driver was found", why="nvidia-smi is not on PATH", fix=fix)
    code, text = _run([tool, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader"])
    if code == 0:
        return parse_query(text)
    if "is not a valid field" in text:
        code, text = _run([tool, "-q", "-x"])
        if code == 0:
            return parse_xml(text)
    raise failure(text, code)


def _run(argv: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        why = f"no answer within {_TIMEOUT} s"
        raise CannotTell("nvidia-smi hangs", why=why, fix="look at dmesg for Xid errors") from error
    except OSError as error:
        raise CannotTell("nvidia-smi cannot be started", why=str(error)) from error
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr
