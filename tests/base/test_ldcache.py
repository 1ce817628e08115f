"""The loader's cache, held against the real ldconfig and the real loader's cache of this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from builder.base.ldcache import ld_cache, parse_ld_cache, soname

LIBRARIES = {
    "libz.so.1": "/lib/x86_64-linux-gnu/libz.so.1",
    "libfoo.so.10": "/lib/libfoo.so.10",
    "libfoo.so.9": "/lib/libfoo.so.9",
    "libfoo-2.so": "/lib/libfoo-2.so",
    "ld-linux-x86-64.so.2": "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
}


def test_numbers_sort_as_numbers_and_downwards() -> None:
    order = list(parse_ld_cache(ld_cache(LIBRARIES, "x86_64")))
    assert order.index("libfoo.so.10") < order.index("libfoo.so.9")
    assert order[0] == "libz.so.1"


@pytest.mark.skipif(shutil.which("ldconfig") is None, reason="ldconfig is not installed")
def test_ldconfig_reads_what_we_write(tmp_path: Path) -> None:
    path = tmp_path / "ld.so.cache"
    path.write_bytes(ld_cache(LIBRARIES, "x86_64"))
    done = subprocess.run(["ldconfig", "-p", "-C", str(path)], capture_output=True, text=True, check=True)
    assert "\tlibfoo.so.10 (libc6,x86-64) => /lib/libfoo.so.10\n" in done.stdout
    assert len(done.stdout.splitlines()) >= len(LIBRARIES) + 1


def test_the_real_cache_has_our_order() -> None:
    path = Path("/etc/ld.so.cache")
    if not path.is_file():
        pytest.skip("this machine's loader keeps no cache")
    found = parse_ld_cache(path.read_bytes())
    assert list(parse_ld_cache(ld_cache(found, "x86_64"))) == list(found)


def test_other_bytes_are_no_cache() -> None:
    with pytest.raises(ValueError, match="not a loader cache"):
        parse_ld_cache(b"ld.so-1.7.0" + bytes(100))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_sonames_of_real_libraries(tmp_path: Path) -> None:
    source = tmp_path / "x.c"
    source.write_text("int x(void) { return 1; }\n")
    for name, options in {"with.so": ["-Wl,-soname,libx.so.7"], "without.so": []}.items():
        command = ["gcc", "-shared", "-fPIC", *options, "-o", str(tmp_path / name), str(source)]
        subprocess.run(command, check=True)
    with_soname = (tmp_path / "with.so").read_bytes()
    assert soname(with_soname) == "libx.so.7"
    assert soname((tmp_path / "without.so").read_bytes()) is None
    assert soname(b"\x7fELF" + bytes(100)) is None
    assert soname(b"INPUT(libx.a)") is None
