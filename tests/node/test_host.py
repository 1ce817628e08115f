"""What a Linux machine says of itself, read from texts in the form the kernel and the systems write."""

from __future__ import annotations

import platform

import pytest

from builder.errors import CannotTell
from builder.node.host import (
    cpu_level,
    machine_arch,
    parse_cpuinfo,
    parse_docker_version,
    parse_meminfo,
    parse_os_release,
    read_host,
)

V1 = "fpu cx8 cmov mmx fxsr sse sse2 "
V2 = V1 + "pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm "
V3 = V2 + "fma movbe xsave avx f16c bmi1 avx2 bmi2 abm "
V4 = V3 + "avx512f avx512dq avx512cd avx512bw avx512vl "

X86 = """\
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480C
flags\t\t: {flags}
bogomips\t: 4000.00

processor\t: 1
model name\t: another
flags\t\t: fpu
"""

ARM = """\
processor\t: 0
BogoMIPS\t: 2000.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm dcpop
CPU implementer\t: 0x41
"""


def test_cpuinfo_of_x86() -> None:
    model, flags = parse_cpuinfo(X86.format(flags=V4))
    assert model == "Intel(R) Xeon(R) Platinum 8480C"
    assert "avx512vl" in flags


def test_cpuinfo_of_arm_has_no_model_name() -> None:
    model, flags = parse_cpuinfo(ARM)
    assert model is None
    assert cpu_level("aarch64", flags) == "armv8.2-a"


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (V1, "x86-64-v1"),
        (V2, "x86-64-v2"),
        (V3, "x86-64-v3"),
        (V4, "x86-64-v4"),
        (V4.replace("avx2 ", ""), "x86-64-v2"),
        # FR-32: Xeon E7-4830 v2 has AVX and F16C, and neither AVX2 nor FMA.
        (V2 + "avx f16c xsave", "x86-64-v2"),
        ("", None),
    ],
)
def test_levels_need_all_of_their_own_and_lower_flags(flags: str, level: str | None) -> None:
    assert cpu_level("x86_64", flags.split()) == level


def test_meminfo_is_in_mib() -> None:
    assert parse_meminfo("MemTotal:       65536000 kB\nMemFree:        1 kB\n") == 64000
    assert parse_meminfo("") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n', "debian 12"),
        ("ID=ubuntu\nVERSION_ID='22.04'\n", "ubuntu 22.04"),
        ("ID=arch\n", "arch"),
        ("# nothing\n", None),
        ("", None),
    ],
)
def test_os_release(text: str, found: str | None) -> None:
    assert parse_os_release(text) == found


def test_docker_versions() -> None:
    assert parse_docker_version("Docker version 20.10.24+dfsg1, build 297e128\n") == "docker 20.10.24"
    assert parse_docker_version("podman 5") is None


def test_other_machines_are_said_to_be_out_of_scope() -> None:
    with pytest.raises(CannotTell, match="no images are made for 'riscv64' machines"):
        machine_arch("riscv64")


def test_this_machine() -> None:
    host = read_host({})
    assert host.arch == platform.machine()
    assert host.kernel == platform.release()
    assert host.cpus >= 1
    assert host.memory_mib is not None
    assert host.memory_mib > 100
    assert (host.cpu_level or "").startswith(("x86-64-v", "armv8"))
