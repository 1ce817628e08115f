"""Wheels that hide an accelerator dependency from the usual tools, by kind. No GPU is needed for any of them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.audit.make import (
    RUNTIME_MARK,
    Entry,
    as_c_array,
    fatbin,
    judged,
    library,
    patchelf,
    wheel,
    without_sections,
)

TOOLKIT = Path("/usr/local/cuda/lib64")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")


def kernel_library(folder: Path, *options: str) -> Path:
    """A real library with a kernel, the runtime linked in statically, nothing exported, stripped."""
    source = folder / "k.cu"
    source.write_text(
        "__global__ void k(float *x) { x[threadIdx.x] *= 2; }\n"
        'extern "C" __attribute__((visibility("default"))) void run(float *x) { k<<<1, 32>>>(x); }\n'
    )
    out = folder / "libk.so"
    targets = ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=[sm_90,compute_90]"]
    command = ["nvcc", "-shared", "-cudart", "static", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
    command += ["-Xlinker", "--exclude-libs=ALL", *targets, *options, "-o", str(out), str(source)]
    subprocess.run(command, check=True)
    subprocess.run(["strip", "--strip-all", str(out)], check=True)
    return out


@needs_nvcc
def test_static_runtime_stripped(tmp_path: Path) -> None:
    made = wheel(tmp_path, "quiet", {"quiet/libk.so": kernel_library(tmp_path).read_bytes()})
    audit = judged(made)
    assert set(audit.tokens["cuda"]) >= {"static", "device"}
    assert not {"hard", "bundled", "via"} & set(audit.tokens["cuda"])
    assert (audit.archs.cuda_sm, audit.archs.cuda_ptx) == (("sm_80", "sm_90"), ("compute_90",))
    assert audit.level == "carry"


@needs_nvcc
def test_compressed_without_sections_under_a_plain_name(tmp_path: Path) -> None:
    data = without_sections(kernel_library(tmp_path, "-Xfatbin", "-compress-all").read_bytes())
    audit = judged(wheel(tmp_path, "quiet", {"quiet/libcore.so.12.1": data}))
    assert set(audit.tokens["cuda"]) >= {"static", "device"}
    assert (audit.archs.cuda_sm, audit.archs.cuda_ptx) == (("sm_80", "sm_90"), ("compute_90",))


def test_static_runtime_by_its_mark_alone(tmp_path: Path) -> None:
    code = as_c_array(RUNTIME_MARK, section=".rodata.x", name="mark") + as_c_array(fatbin("sm_80"))
    data = without_sections(library(tmp_path, "x.so", code=code).read_bytes())
    audit = judged(wheel(tmp_path, "quiet", {"quiet/data.bin": data}))
    assert set(audit.tokens["cuda"]) == {"static", "device"}


@needs_nvcc
def test_the_runtime_under_another_name(tmp_path: Path) -> None:
    real = next(iter(sorted(TOOLKIT.glob("libcudart.so.[0-9]*"))), None)
    if real is None:
        pytest.skip("no libcudart beside nvcc")
    hidden = tmp_path / "libnumerics.so.7"
    hidden.write_bytes(real.read_bytes())
    hidden.chmod(0o644)
    patchelf("--set-soname", "libnumerics.so.7", hidden)
    source = tmp_path / "user.c"
    source.write_text("int cudaGetDeviceCount(int *); int use(void) { int n; return cudaGetDeviceCount(&n); }")
    user = tmp_path / "libuser.so"
    command = ["gcc", "-shared", "-fPIC", "-o", str(user), str(source), str(real), "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, check=True)
    soname = next(name for name in judged_needed(user) if name.startswith("libcudart"))
    patchelf("--replace-needed", soname, "libnumerics.so.7", user)
    files = {"pkg/libnumerics.so.7": hidden.read_bytes(), "pkg/libuser.so": user.read_bytes()}
    audit = judged(wheel(tmp_path, "numerics", files))
    assert "bundled" in audit.tokens["cuda"]
    assert "hard" not in audit.tokens["cuda"]
    bundled = next(finding for finding in audit.findings if finding.rule == "foreign-bundled")
    assert bundled.path == "pkg/libnumerics.so.7"
    assert "really libcudart" in bundled.evidence
    alone = judged(wheel(tmp_path, "lonely", {"pkg/libuser.so": user.read_bytes()}))
    assert "hard" in alone.tokens["cuda"]


def judged_needed(path: Path) -> tuple[str, ...]:
    from builder.audit.elf import parse_elf

    return parse_elf(path.read_bytes()).needed


def test_needed_without_sections(tmp_path: Path) -> None:
    data = without_sections(library(tmp_path, "x.so", needs=["libcudart.so.12"]).read_bytes())
    audit = judged(wheel(tmp_path, "cut", {"cut/_x.so": data}))
    assert audit.tokens == {"cuda": ("hard",)}
    assert audit.level == "block"


def test_foreign_architecture(tmp_path: Path) -> None:
    data = bytearray(library(tmp_path, "x.so", needs=["libcudart.so.12"]).read_bytes())
    struct.pack_into("<H", data, 18, 183)
    audit = judged(wheel(tmp_path, "mixed", {"mixed/x.so": bytes(data)}))
    assert audit.tokens == {"cuda": ("hard",)}
    assert "(aarch64)" in audit.findings[0].evidence


@pytest.mark.parametrize(
    ("runpath", "shown"),
    [
        ("$ORIGIN/../../../../../usr/local/cuda/lib64", "../../../usr/local/cuda/lib64"),
        ("/usr/local/cuda/lib64", "/usr/local/cuda/lib64"),
        ("$ORIGIN/../../nvidia/cuda_runtime/lib", "nvidia/cuda_runtime/lib"),
    ],
)
def test_search_path_that_leaves_the_wheel(tmp_path: Path, runpath: str, shown: str) -> None:
    made = library(tmp_path, "x.so", needs=["libcudart.so.12"], options=[f"-Wl,-rpath,$ORIGIN:{runpath}"])
    audit = judged(wheel(tmp_path, "escape", {"escape/sub/x.so": made.read_bytes()}))
    assert audit.tokens == {"cuda": ("hard",)}
    note = next(finding for finding in audit.findings if finding.rule == "search-path-leaves-wheel")
    assert note.evidence == f"looks for libraries outside: {shown}"


def test_names_without_libraries_behind_them(tmp_path: Path) -> None:
    user = library(tmp_path, "x.so", needs=["libcudart.so.12", "libcublas.so.12"], options=["-Wl,-rpath,$ORIGIN"])
    files = [
        Entry(name="pkg/x.so", data=user.read_bytes()),
        Entry(name="pkg/libcudart.so.12", data=b"/* GNU ld script */\nGROUP ( /usr/lib/libcudart.so.12 )\n"),
        Entry(name="pkg/libcublas.so.12", data=b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
        Entry(name="pkg/libcudart.so", data=b"libcudart.so.12", symlink=True),
    ]
    audit = judged(wheel(tmp_path, "pointers", files))
    assert audit.tokens["cuda"] == ("hard",)
    rules = {(finding.rule, finding.path) for finding in audit.findings}
    assert ("library-in-name-only", "pkg/libcudart.so.12") in rules
    assert ("library-in-name-only", "pkg/libcublas.so.12") in rules
    assert any(finding.rule == "unsafe-wheel" for finding in audit.findings)
    assert audit.level == "block"


@pytest.mark.parametrize(("option", "token", "level"), [("-F", "hard", "block"), ("-f", "soft", "warn")])
def test_filters(tmp_path: Path, option: str, token: str, level: str) -> None:
    made = library(tmp_path, "x.so", options=[f"-Wl,{option},libcudart.so.12"])
    audit = judged(wheel(tmp_path, "filter", {"filter/x.so": made.read_bytes()}))
    assert audit.tokens == {"cuda": (token,)}
    assert audit.level == level


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_one_name_twice(tmp_path: Path) -> None:
    clean = library(tmp_path / "a", "x.so").read_bytes()
    dirty = library(tmp_path / "b", "x.so", needs=["libcudart.so.12"]).read_bytes()
    both = [Entry(name="twice/x.so", data=clean), Entry(name="twice/x.so", data=dirty)]
    audit = judged(wheel(tmp_path, "twice", both))
    assert audit.tokens == {"cuda": ("hard",)}
    assert any(finding.rule == "duplicate-member" and finding.path == "twice/x.so" for finding in audit.findings)


def test_metadata_alone(tmp_path: Path) -> None:
    requires = [
        "nvidia-cuda-runtime-cu12>=12",
        'nvidia-nccl-cu12; extra == "multi"',
        'nvidia-cublas-cu12; sys_platform == "win32"',
    ]
    audit = judged(wheel(tmp_path, "plain", {"plain/__init__.py": b""}, requires=requires))
    assert audit.tokens == {"cuda": ("meta", "meta-extra")}
    assert not any("win32" in finding.evidence for finding in audit.findings)
    only_windows = judged(wheel(tmp_path, "windows", {"windows/__init__.py": b""}, requires=requires[2:]))
    assert only_windows.tokens == {}
    assert only_windows.level == "ok"


def test_words_are_not_dependencies(tmp_path: Path) -> None:
    """Substrings of symbols, LLVM's literals, log messages and comments: nothing of it loads CUDA."""
    code = (
        "int accuInit(void) { return 0; } int FinalizeInit(void) { return 0; }\n"
        'const char *a = "__CLANG_OFFLOAD_BUNDLE__", *b = "nvptx64-nvidia-cuda", *c = "amdgcn";\n'
        'const char *d = "cannot open libcuda.so.1: is the driver installed?";\n'
        'void *dlopen(const char *, int); void *e(void) { return dlopen("libm.so.6", 1); }\n'
    )
    files = {
        "words/x.so": library(tmp_path, "x.so", code=code).read_bytes(),
        "words/__init__.py": b'"""Needs no libcudart.so.12."""\nimport ctypes\nctypes.CDLL("libm.so.6")\n',
    }
    audit = judged(wheel(tmp_path, "words", files))
    assert audit.tokens == {}
    assert audit.level == "ok"
