"""Promises of a wheel that its files do not keep."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from builder.audit.audit import audit_lock, load_rules
from builder.audit.facts import ElfFacts
from builder.audit.floors import symbol_floors
from builder.audit.promises import promise_of, record_faults
from builder.audit.values import Finding
from builder.events import SilentReporter
from tests.audit import manylinux
from tests.audit.inside import Inside
from tests.audit.make import gcc, judged, library, wheel
from tests.audit.test_lock_audit import audited, lock_of

PY = "int PyInit_x(void) { return 0; }"
NEW = """
__asm__(".symver exp, exp@GLIBC_2.29");
double exp(double);
volatile double two = 2;
int PyInit_x(void) { return (int)exp(two); }
"""
"""Asks for exp@GLIBC_2.29, the version that glibc 2.29 gave the function."""


def rules(path: Path) -> dict[str, Finding]:
    return {finding.rule: finding for finding in judged(path).findings}


@pytest.mark.parametrize(
    ("tag", "glibc", "cxx"),
    [
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", "2.17", "3.4.19"),
        ("cp311-cp311-manylinux1_x86_64.manylinux_2_28_x86_64", "2.5", "3.4.8"),
        ("cp311-cp311-manylinux_2_28_aarch64", "2.28", "3.4.24"),
        ("cp311-cp311-manylinux_2_33_x86_64", "2.33", None),
        ("cp311-cp311-linux_x86_64", None, None),
        ("py3-none-any", None, None),
    ],
)
def test_the_least_of_all_tags_is_the_promise(tag: str, glibc: str | None, cxx: str | None) -> None:
    promise = promise_of(f"x-1.0-{tag}.whl")
    assert (promise.glibc if promise else None) == glibc
    assert (promise.newest.get("GLIBCXX") if promise else None) == cxx


@pytest.mark.parametrize(("tag", "broken"), [("manylinux_2_17_x86_64", True), ("manylinux_2_35_x86_64", False)])
def test_a_symbol_newer_than_the_tag_promises(tmp_path: Path, tag: str, broken: bool) -> None:
    made = library(tmp_path, "x.so", code=NEW, options=["-lm"])
    path = wheel(tmp_path, "math", {"math/x.so": made.read_bytes()}, tag=f"cp311-cp311-{tag}")
    found = rules(path)
    assert ("newer-symbols-than-the-tag" in found) is broken
    if broken:
        assert found["newer-symbols-than-the-tag"].evidence == (
            "needs GLIBC_2.29, manylinux_2_17_x86_64 promises GLIBC_2.17 at most"
        )
        assert judged(path).level == "ok"


def test_libstdcxx_counts_unless_the_wheel_brings_its_own(tmp_path: Path) -> None:
    source = tmp_path / "x.cpp"
    source.write_text("#include <memory_resource>\nvoid *f() { return std::pmr::get_default_resource(); }")
    made = tmp_path / "x.so"
    subprocess.run([gcc(), "-std=c++17", "-shared", "-fPIC", "-o", made, source, "-lstdc++"], check=True)
    files = {"kit/x.so": made.read_bytes()}
    tag = "cp311-cp311-manylinux_2_27_x86_64"
    found = rules(wheel(tmp_path, "kit", files, tag=tag))
    assert "promises GLIBCXX_3.4.24 at most" in found["newer-symbols-than-the-tag"].evidence
    own = library(tmp_path, "libstdc++.so.6", soname="libstdc++.so.6")
    files["kit.libs/libstdc++.so.6"] = own.read_bytes()
    assert "newer-symbols-than-the-tag" not in rules(wheel(tmp_path, "kit", files, version="2.0", tag=tag))


def test_a_wheel_that_needs_a_newer_glibc_than_the_lock_says_blocks(tmp_path: Path) -> None:
    made = library(tmp_path, "x.so", code=NEW, options=["-lm"])
    files = {"math": wheel(tmp_path, "math", {"math/x.so": made.read_bytes()}, tag="cp311-cp311-linux_x86_64")}
    assert audited(files, {}, ("math",), "cpu").level == "ok"
    lock = replace(lock_of(files, {}, ("math",), "cpu"), glibc="2.28")
    paths = {path.name: path for path in files.values()}
    report = audit_lock(lock, paths, backend="cpu", reporter=SilentReporter())
    assert report.level == "block"
    (finding,) = report.targets[0].findings
    assert (finding.rule, finding.evidence) == (
        "newer-glibc-than-the-image",
        "needs GLIBC_2.29, the image has glibc 2.28",
    )


def as_machine(data: bytes, machine: int) -> bytes:
    """The same file, marked for another processor (e_machine)."""
    return data[:18] + machine.to_bytes(2, "little") + data[20:]


def test_an_extension_for_another_processor_is_a_warning_a_helper_a_note(tmp_path: Path) -> None:
    data = library(tmp_path, "x.so", code=PY).read_bytes()
    tool = library(tmp_path, "tool.so").read_bytes()
    wrong = rules(wheel(tmp_path, "wrong", {"wrong/x.so": as_machine(data, 183)}))["foreign-machine"]
    assert (wrong.severity, wrong.evidence) == ("warning", "the tag promises x86_64, found wrong/x.so (aarch64)")
    both = {"both/x.so": data, "both/arm/tool.so": as_machine(tool, 183)}
    assert rules(wheel(tmp_path, "both", both))["foreign-machine"].severity == "info"
    assert "foreign-machine" not in rules(wheel(tmp_path, "right", {"right/x.so": data}))


def test_native_code_in_a_wheel_for_any_machine(tmp_path: Path) -> None:
    data = library(tmp_path, "x.so", code=PY).read_bytes()
    found = rules(wheel(tmp_path, "pure", {"pure/x.so": data}, tag="py3-none-any"))["native-code-for-any-machine"]
    assert found.evidence == "the tag says any machine, pure/x.so is for x86_64"


def test_an_executable_stack(tmp_path: Path) -> None:
    made = library(tmp_path, "x.so", options=["-Wl,-z,execstack"])
    found = rules(wheel(tmp_path, "kit", {"kit/x.so": made.read_bytes()}))["executable-stack"]
    assert (found.path, found.severity) == ("kit/x.so", "warning")


def test_record_against_the_archive(tmp_path: Path) -> None:
    assert "record-mismatch" not in rules(wheel(tmp_path, "kit", {"kit/a.py": b"a = 1"}))
    record = "kit/a.py,,4\nkit/gone.py,,1\nkit-2.0.dist-info/METADATA,sha256=AAAA,\n"
    found = rules(wheel(tmp_path, "kit", {"kit/a.py": b"a = 1"}, version="2.0", record=record))["record-mismatch"]
    for said in (
        "kit/a.py has 5 bytes, 4 are listed",
        "METADATA does not have the listed hash",
        "WHEEL is not listed",
        "kit/gone.py is listed and not there",
    ):
        assert said in found.evidence


def test_every_hash_of_record_on_request(builder: Inside, tmp_path: Path) -> None:
    wrong = "kit/a.bin,sha256=AAAA,4\nkit/b.py,md5=AAAA,1\n"
    path = wheel(tmp_path, "kit", {"kit/a.bin": b"1234", "kit/b.py": b"1"}, record=wrong)

    def evidence(*options: str) -> str:
        (target,) = json.loads(builder("audit", path, "--backend", "cpu", "--json", *options).stdout)["targets"]
        return "".join(item["evidence"] for item in target["findings"] if item["rule"] == "record-mismatch")

    assert "listed hash" not in evidence()
    for _ in range(2):  # the second time from the store
        assert "kit/a.bin does not have the listed hash" in evidence("--record")
        assert "kit/b.py" not in evidence("--record")


def test_a_record_that_is_no_table() -> None:
    assert record_faults(b'a,"b\n\0', {}, {})


def test_floors_are_the_highest_by_number_not_by_text(tmp_path: Path) -> None:
    path = wheel(tmp_path, "kit", {"kit/x.so": library(tmp_path, "x.so").read_bytes()})
    (elf,) = load_rules().scanner.scan(path, path.name).elf
    asked = replace(elf, version_needs={"libc.so.6": ("GLIBC_2.4", "GLIBC_2.17", "GLIBC_PRIVATE")})
    assert symbol_floors([asked]) == {"GLIBC": ("2.17", "kit/x.so")}


def test_the_policies_are_those_of_auditwheel() -> None:
    pytest.importorskip("auditwheel")
    assert manylinux.PATH.read_text() == manylinux.rendered(), "run: python -m tests.audit.manylinux"


def test_a_library_that_the_tag_does_not_promise(tmp_path: Path) -> None:
    needs = ["libGLU.so.1", "libX11.so.6", "libcuda.so.1", "libtorch_cpu.so", "libown.so"]
    made = library(tmp_path, "x.so", code=PY, needs=needs, options=["-lm"]).read_bytes()
    own = library(tmp_path, "libown.so", soname="libown.so").read_bytes()
    files = {"kit/x.so": made, "kit/libown.so": own}
    found = rules(wheel(tmp_path, "kit", files, tag="cp311-cp311-manylinux_2_17_x86_64"))["library-outside-the-tag"]
    assert (found.severity, found.path) == ("info", "kit/x.so")
    assert found.evidence.startswith("needs libGLU.so.1, which neither")
    plain = wheel(tmp_path, "kit", files, version="2.0", tag="cp311-cp311-linux_x86_64")
    assert "library-outside-the-tag" not in rules(plain)


@pytest.mark.parametrize(
    ("glibc", "library_name", "first"), [("2_17", "libmvec.so.1", False), ("2_24", "libmvec.so.1", True)]
)
def test_libraries_are_allowed_from_the_policy_on_that_has_them(glibc: str, library_name: str, first: bool) -> None:
    promise = promise_of(f"x-1.0-cp311-cp311-manylinux_{glibc}_x86_64.whl")
    assert promise is not None
    assert (library_name in promise.libraries) is first


def test_a_wheel_with_packed_relocations_needs_the_glibc_that_knows_them() -> None:
    elf = ElfFacts(
        path="x.so",
        machine="x86_64",
        type="shared",
        size=1,
        crc32=0,
        version_needs={"libc.so.6": ("GLIBC_2.17", "GLIBC_ABI_DT_RELR"), "libgcc_s.so.1": ("GCC_3.0", "GCC_4.8.0")},
    )
    assert symbol_floors([elf]) == {"GLIBC": ("2.36", "x.so"), "GCC": ("4.8.0", "x.so")}
