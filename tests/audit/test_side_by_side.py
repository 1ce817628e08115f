"""Members looked at by several threads: the same facts, in the same order, whatever is damaged."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from builder.audit.audit import load_rules
from tests.audit.make import as_c_array, fatbin, library

NAME = "thing-1.0-cp311-cp311-linux_x86_64.whl"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty members of half a megabyte and more, and some sources; one member is not what its CRC-32 says."""
    folder = tmp_path_factory.mktemp("side")
    native = library(folder, "x.so", needs=["libcudart.so.12"], code=as_c_array(fatbin("sm_90"))).read_bytes()
    path = folder / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(20):
            noise = hashlib.shake_256(bytes([number])).digest(600_000)
            archive.writestr(f"thing/lib{number}.so", native + noise)
            archive.writestr(f"thing/m{number}.py", f"import ctypes\nctypes.CDLL('libnvrtc.so.{number}')\n")
        archive.writestr("thing/broken.so", native + b"the end of it")
        archive.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr("thing-1.0.dist-info/RECORD", "")
        info = archive.getinfo("thing/broken.so")
        crc = info.CRC.to_bytes(4, "little")
    data = path.read_bytes()
    assert data.count(crc) == 2  # in the member's header and in the directory
    path.write_bytes(data.replace(crc, b"\0\0\0\0"))
    return path


@pytest.mark.parametrize("jobs", [2, 5])
def test_threads_see_what_one_sees(wheel: Path, jobs: int) -> None:
    scanner = load_rules().scanner
    alone = scanner.scan(wheel, NAME)
    assert [elf.path for elf in alone.elf] == [f"thing/lib{number}.so" for number in range(20)]
    assert {elf.needed for elf in alone.elf} == {("libcudart.so.12", "libc.so.6")}
    assert [use.name for use in alone.python] == [f"libnvrtc.so.{number}" for number in range(20)]
    assert any("thing/broken.so" in fault for fault in alone.faults)
    assert scanner.scan(wheel, NAME, jobs=jobs) == alone
