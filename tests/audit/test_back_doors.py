"""Back doors in Python, data files, metadata and native code, and harmless things that look like one.

Each expectation was written down before the audit was asked.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import marshal
import pickle
import struct
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from builder.audit.values import TargetAudit
from tests.audit.make import RUNTIME_MARK, as_c_array, fatbin, judged, library, patchelf, wheel, without_sections

OPENS = "void *dlopen(const char *, int);\n"
SOFT = {"cuda": ("soft-py",)}
PLUGIN = {"cuda": ("hard-plugin",)}
DATA = {"cuda": ("data",)}


@pytest.fixture(scope="module")
def needy(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library that needs the CUDA runtime."""
    return library(tmp_path_factory.mktemp("needy"), "x.so", needs=["libcudart.so.12"]).read_bytes()


def of(folder: Path, files: dict[str, bytes], *requires: str, name: str = "kit", **more: str) -> TargetAudit:
    return judged(wheel(folder, name, files, requires=requires, **more))


def python(folder: Path, source: str) -> TargetAudit:
    return of(folder, {"kit/__init__.py": source.encode()})


def native(folder: Path, source: str, **options: object) -> bytes:
    return library(folder, "made.so", code=source, **options).read_bytes()  # type: ignore[arg-type]


def rules(audit: TargetAudit) -> set[str]:
    return {finding.rule for finding in audit.findings}


# --- Python: the loader under another name -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        'import ctypes\ngetattr(ctypes, "CD" + "LL")("libcuda.so.1")\n',
        'import ctypes\nvars(ctypes)["CDLL"]("libcuda.so.1")\n',
        'import ctypes\nctypes.__dict__["CDLL"]("libcuda.so.1")\n',
        'import ctypes\ngetattr(ctypes.cdll, "libcuda.so.1")\n',
        'import ctypes\nclass Library(ctypes.CDLL):\n    pass\nLibrary("libcuda.so.1")\n',
        'import ctypes, functools\nload = functools.partial(ctypes.CDLL, mode=1)\nload("libcuda.so.1")\n',
        'import ctypes\nlist(map(ctypes.CDLL, ["libcuda.so.1"]))\n',
        'import ctypes, threading\nthreading.Thread(target=ctypes.CDLL, args=("libcuda.so.1",)).start()\n',
        'import _ctypes\n_ctypes.dlopen("libcuda.so.1", 2)\n',
        'import ctypes\nctypes._dlopen("libcuda.so.1", 2)\n',
        'import imp\nimp.load_dynamic("x", "/usr/lib/libcuda.so.1")\n',
        'from importlib.machinery import ExtensionFileLoader as E\nE("x", "/usr/lib/libcuda.so.1").load_module()\n',
        'import llvmlite.binding as b\nb.load_library_permanently("libcuda.so.1")\n',
        'import tensorflow as tf\ntf.load_op_library("libcudart.so.12")\n',
        'from kit.support import c\ndll = c.DLL("cuda", "nvcuda" if WIN else "cuda")\n',
        'import cffi\nffi = cffi.FFI()\nlib = ffi.dlopen("cudart")\n',
        'from ctypes import cdll as d\nd["libcuda.so.1"]\n',
        'import ctypes\nL = ctypes.LibraryLoader(ctypes.CDLL)\nL["libcuda.so.1"]\n',
        'import ctypes\nlibs = ctypes.cdll\ngetattr(libs, "libcuda.so.1")\n',
        "import ctypes\nexec('ctypes.CDLL(\"libcuda.so.1\")')\n",
        "import os, sys\nos.execv(sys.executable, ['-c', 'import ctypes; ctypes.CDLL(\"libcuda.so.1\")'])\n",
        'import ctypes\nload = lambda name: ctypes.CDLL(name)\nload("libcuda.so.1")\n',
        'import os, sys\nos.environ["LD_PRELOAD"] = "libcuda.so.1"\nos.execv(sys.executable, sys.argv)\n',
    ],
    ids=range(23),
)
def test_a_loader_under_another_name(tmp_path: Path, source: str) -> None:
    assert python(tmp_path, source).tokens == SOFT


# --- Python: the name in disguise ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        'import ctypes\ndef load(stem):\n    return ctypes.CDLL(f"lib{stem}.so.1")\nload("cuda")\n',
        'import cffi\ndef load(stem):\n    return cffi.FFI().dlopen(f"lib{stem}.so")\nload(stem="cudart")\n',
        'import ctypes\nctypes.CDLL("1.os.aducbil"[::-1])\n',
        'import ctypes\nctypes.CDLL("xlibcuda.so.1x"[1:-1])\n',
        "import ctypes\nctypes.CDLL(bytes([108, 105, 98, 99, 117, 100, 97, 46, 115, 111]).decode())\n",
        'import ctypes\nctypes.CDLL("".join(map(chr, [108, 105, 98, 99, 117, 100, 97, 46, 115, 111])))\n',
        'import ctypes\nctypes.CDLL("".join(chr(c) for c in (108, 105, 98, 99, 117, 100, 97, 46, 115, 111)))\n',
        'import base64, ctypes\nctypes.CDLL(base64.b64decode("bGliY3VkYS5zby4x").decode())\n',
        'import ctypes\nctypes.CDLL(bytes.fromhex("6c6962637564612e736f2e31").decode())\n',
        'import codecs, ctypes\nctypes.CDLL(codecs.decode("yvophqn.fb.1", "rot13"))\n',
        'import ctypes\nctypes.CDLL("lib\\x63uda.so.1")\n',
        'import ctypes\nctypes.CDLL("libnvidia_ml.so.1".replace("_", "-"))\n',
        'import ctypes\nctypes.CDLL("LIBCUDA.SO.1".lower())\n',
        'import ctypes\nNAMES = {"a": "libcuda.so.1"}\nctypes.CDLL(NAMES["a"])\n',
        'import ctypes, string\nctypes.CDLL(string.Template("lib$x.so.1").substitute(x="cuda"))\n',
        'import ctypes\nctypes.CDLL("lib{stem}.so.{n}".format(n=1, stem="cuda"))\n',
        'import ctypes\nctypes.CDLL("lib%(stem)s.so.1" % {"stem": "cuda"})\n',
        'import ctypes\nctypes.CDLL("libcuda" ".so" * 1)\n',
    ],
    ids=range(18),
)
def test_a_name_in_disguise(tmp_path: Path, source: str) -> None:
    assert python(tmp_path, source).tokens == SOFT


@pytest.mark.parametrize(
    "source",
    [
        'import ctypes\nKEY = 7\nctypes.CDLL("".join(chr(ord(c) ^ KEY) for c in "kndds"))\n',
        'import ctypes, glob\nfor path in glob.glob(folder + "/*.so*"):\n    ctypes.CDLL(path)\n',
        "import ctypes, os\nfor name in os.listdir(folder):\n    ctypes.CDLL(os.path.join(folder, name))\n",
        'import ctypes, json\nctypes.CDLL(json.load(open("libs.json"))["first"])\n',
    ],
    ids=range(4),
)
def test_a_name_that_cannot_be_told_is_unknown(tmp_path: Path, source: str) -> None:
    audit = python(tmp_path, source)
    assert "computed-dlopen" in rules(audit)
    assert audit.tokens == {}


# --- Python: sources that are not read as they stand ---------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        b'print "loading"\nimport ctypes\nctypes.CDLL("libcuda.so.1")\n',
        b'import ctypes\ndef f[T](x: T) -> T:\n    return ctypes.CDLL("libcuda.so.1")\n',
        b'import ctypes\ntry:\n    ctypes.CDLL("libcuda.so.1")\nexcept OSError, ValueError:\n    pass\n',
        b'import ctypes\nX = t"{a}"\nlib = ctypes.cdll.LoadLibrary("libcuda.so.1")\n',
    ],
    ids=["python-2", "type-parameters", "unparenthesised", "template-string"],
)
def test_a_source_for_another_python(tmp_path: Path, source: bytes) -> None:
    assert of(tmp_path, {"kit/__init__.py": source}).tokens == SOFT


def test_a_source_for_another_python_that_only_talks(tmp_path: Path) -> None:
    source = (
        b'print "x"\nimport ctypes\n# ctypes.CDLL("libcuda.so.1")\nctypes.CDLL("libm.so.6")\nX = "no libcuda.so.1?"\n'
    )
    assert of(tmp_path, {"kit/__init__.py": source}).tokens == {}


def test_a_source_in_another_encoding(tmp_path: Path) -> None:
    line = "import ctypes\nctypes.CDLL('libcuda.so.1')\n"
    data = (
        b"# -*- coding: utf-7 -*-\n"
        + "".join(
            char if char == "\n" else "+" + base64.b64encode(char.encode("utf-16-be")).decode().rstrip("=") + "-"
            for char in line
        ).encode()
    )
    assert of(tmp_path, {"kit/__init__.py": data}).tokens == SOFT


def compiled(source: str) -> bytes:
    return b"\xa7\x0d\x0d\n" + bytes(12) + marshal.dumps(compile(source, "x.py", "exec"))


def test_a_library_inside_a_compiled_module(tmp_path: Path, needy: bytes) -> None:
    audit = of(tmp_path, {"kit/__init__.pyc": compiled(f"DATA = {needy!r}\n")})
    assert audit.tokens == PLUGIN


@pytest.mark.parametrize("way", ["b64", "b85", "zlib", "zlib-b85"])
def test_a_packed_library_inside_a_compiled_module(tmp_path: Path, needy: bytes, way: str) -> None:
    data = zlib.compress(needy) if "zlib" in way else needy
    text = base64.b64encode(data) if way == "b64" else base64.b85encode(data) if "b85" in way else data
    source = f"import base64, zlib\nDATA = {text!r}\nLIB = zlib.decompress(base64.b64decode(base64.b85decode(DATA)))\n"
    assert of(tmp_path, {"kit/__init__.pyc": compiled(source)}).tokens == PLUGIN


def test_a_code_object_inside_a_source(tmp_path: Path) -> None:
    code = marshal.dumps(compile('import ctypes\nctypes.CDLL("libcuda.so.1")\n', "x", "exec"))
    text = base64.b64encode(zlib.compress(code)).decode()
    source = f"import base64, marshal, zlib\nexec(marshal.loads(zlib.decompress(base64.b64decode({text!r}))))\n"
    assert python(tmp_path, source).tokens == SOFT


def test_device_sources_among_python_strings(tmp_path: Path) -> None:
    kernel = 'SRC = r"""extern "C" __global__ void f(float *x) { x[threadIdx.x] = 1; }"""\n'
    for number, use in enumerate(
        (
            "import cupy\nF = cupy.RawKernel(SRC, 'f')\n",
            "import pycuda.compiler\nM = pycuda.compiler.SourceModule(SRC)\n",
            "from torch.utils.cpp_extension import load_inline\nM = load_inline('m', [], cuda_sources=[SRC])\n",
        )
    ):
        audit = of(tmp_path, {"kit/ops.py": (kernel + use).encode()}, name=f"kit{number}")
        assert (audit.tokens, audit.level) == ({"cuda": ("src",)}, "warn")
    talk = f'"""Example::\n\n    {kernel[:30]} __global__ void f()\n"""\nimport cupy\n'
    assert of(tmp_path, {"kit/doc.py": talk.encode()}, name="talk").tokens == {}


def test_a_shell_that_preloads(tmp_path: Path) -> None:
    script = b'#!/bin/sh\nLD_PRELOAD=/usr/lib/libcuda.so.1:libm.so.6 exec python3 "$@"\n'
    assert of(tmp_path, {"kit-1.0.data/scripts/run": script}).tokens == SOFT
    talk = b"#!/bin/sh\n# LD_PRELOAD=libcuda.so.1 helps\nexec python3\n"
    assert of(tmp_path, {"talk-1.0.data/scripts/run": talk}, name="talk").tokens == {}


def test_a_build_script_among_the_members(tmp_path: Path) -> None:
    build = b"from setuptools import Extension, setup\nsetup(ext_modules=[Extension('x', [], libraries=['cudart'])])\n"
    assert of(tmp_path, {"kit/setup.py": build}).tokens == {}
    assert of(tmp_path, {"run/ops.py": build}, name="run").tokens == SOFT


def test_packages_installed_at_run_time(tmp_path: Path) -> None:
    source = (
        "import subprocess, sys\n"
        'URL = "https://download.pytorch.org/whl/cu121"\n'
        'subprocess.check_call([sys.executable, "-m", "pip", "install", "torch", "--index-url", URL])\n'
    )
    assert "installs-at-run-time" in rules(python(tmp_path, source))
    audit = of(tmp_path, {"kit/a.py": b'import os\nos.system("pip install nvidia-cublas-cu12")\n'}, name="two")
    assert "installs-at-run-time" in rules(audit)
    audit = of(tmp_path, {"kit/a.py": b'raise ImportError("run: pip install torch nvidia-cublas-cu12")\n'}, name="talk")
    assert (audit.tokens, rules(audit)) == ({}, set())
    audit = of(tmp_path, {"kit/a.py": b'import os\nos.system("pip install rich")\n'}, name="plain")
    assert (audit.tokens, rules(audit)) == ({}, set())


def test_code_behind_a_marker_of_another_build_is_told_and_not_held_against_the_wheel(tmp_path: Path) -> None:
    load = '    def load(name):\n        ctypes.CDLL(name)\n    load(folder + "/libcudart.so.12")\npreload()\n'
    guard = "    try:\n        from . import _gpu_build\n    except ImportError:\n        return\n"
    audit = python(tmp_path, f"import ctypes\ndef preload():\n{guard}{load}")
    assert (audit.tokens, audit.level) == (SOFT, "ok")
    audit = of(tmp_path, {"two/__init__.py": f"import ctypes\ndef preload():\n{load}".encode()}, name="two")
    assert (audit.tokens, audit.level) == (SOFT, "warn")


# --- data files ----------------------------------------------------------------------------------------------------


def npz(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("weights.npy", npy(data))
    return out.getvalue()


def npy(data: bytes) -> bytes:
    return (
        b"\x93NUMPY\x01\0v\0" + b"{'descr': '|u1', 'fortran_order': False, 'shape': (9,), }".ljust(117) + b"\n" + data
    )


def safetensors(data: bytes) -> bytes:
    head = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(head)) + head + data


def appended_zip(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x", data)
    return out.getvalue()


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "weights.npy": npy,
    "weights.npz": npz,
    "weights.safetensors": safetensors,
    "weights.pkl": lambda data: pickle.dumps({"w": data}),
    "weights.pt": lambda data: appended_zip(pickle.dumps({"w": data})),
    "cache.bin.zst": lambda data: zstandard.compress(npy(data)),
    "cache.bin.xz": lambda data: lzma.compress(b"header\0" * 9 + data),
    "picture.png": lambda data: b"\x89PNG\r\n\x1a\n" + bytes(64) + data,
    "film.mp4": lambda data: b"\0\0\0\x20ftypisom" + bytes(64) + data,
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_library_inside_a_data_file(tmp_path: Path, needy: bytes, name: str) -> None:
    assert of(tmp_path, {f"kit/{name}": CONTAINERS[name](needy), "kit/__init__.py": b""}).tokens == PLUGIN


@pytest.mark.parametrize("name", CONTAINERS)
def test_device_code_inside_a_data_file(tmp_path: Path, name: str) -> None:
    assert of(tmp_path, {f"kit/{name}": CONTAINERS[name](fatbin("sm_80")), "kit/__init__.py": b""}).tokens == DATA


def test_an_archive_behind_a_library(tmp_path: Path, needy: bytes) -> None:
    plain = library(tmp_path, "y.so").read_bytes()
    assert of(tmp_path, {"kit/y.so": plain + appended_zip(needy)}).tokens == PLUGIN


@pytest.mark.parametrize(
    "magic",
    [b"\x04\x22\x4d\x18", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07\x01\0", b"hsqs", b"\xed\xab\xee\xdb", b"MSCF\0\0\0\0"],
    ids=["lz4", "7z", "rar", "squashfs", "rpm", "cab"],
)
def test_archives_that_nobody_here_opens_are_unknown(tmp_path: Path, magic: bytes) -> None:
    audit = of(tmp_path, {"kit/blob": magic + bytes(range(256)) * 8, "kit/__init__.py": b""})
    assert (audit.tokens, rules(audit)) == ({}, {"unread-archive"})


def test_a_static_runtime_in_an_archive_of_objects(tmp_path: Path) -> None:
    data = b"!<arch>\n" + b"cudart.o/".ljust(48) + b"64        `\n" + RUNTIME_MARK + bytes(48)
    assert of(tmp_path, {"kit/lib/libsupport.a": data, "kit/__init__.py": b""}).tokens == DATA


def bitcode(triple: str) -> bytes:
    """An LLVM module with nothing but its triple, written as the bitstream format says."""
    bits: list[tuple[int, int]] = []

    def vbr(value: int, width: int) -> None:
        half = 1 << (width - 1)
        while value >= half:
            bits.append((value % half + half, width))
            value //= half
        bits.append((value, width))

    bits.append((0xDEC04342, 32))
    bits.append((1, 2))  # ENTER_SUBBLOCK
    vbr(8, 8)  # MODULE_BLOCK
    vbr(3, 4)  # width of abbreviation ids in it
    used = sum(width for _, width in bits)
    bits.append((0, -used % 32))
    body = len(bits)
    bits.append((0, 32))  # its length in words, filled in below
    bits.append((3, 3))  # UNABBREV_RECORD
    vbr(2, 6)  # TRIPLE
    vbr(len(triple), 6)
    for char in triple.encode():
        vbr(char, 6)
    bits.append((0, 3))  # END_BLOCK
    inside = sum(width for _, width in bits[body + 1 :])
    bits.append((0, -inside % 32))
    bits[body] = (sum(width for _, width in bits[body + 1 :]) // 32, 32)
    number = at = 0
    for value, width in bits:
        number |= value << at
        at += width
    return number.to_bytes(at // 8, "little")


@pytest.mark.parametrize(
    ("triple", "tokens"),
    [
        ("nvptx64-nvidia-cuda", {"cuda": ("data",)}),
        ("amdgcn-amd-amdhsa", {"rocm": ("data",)}),
        ("x86_64-unknown-linux-gnu", {}),
    ],
)
def test_bitcode_of_any_name_says_whose_it_is(tmp_path: Path, triple: str, tokens: dict[str, tuple[str, ...]]) -> None:
    assert of(tmp_path, {"kit/kernels.bin": bitcode(triple), "kit/__init__.py": b""}).tokens == tokens


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plugins.json", '{"notice": "NOTICE", "lib": "PAYLOAD"}'),
        ("app.js", "// NOTICE\nconst lib = 'PAYLOAD';\n"),
        ("plugins.yaml", "notice: NOTICE\nlib: |\n  PAYLOAD\n"),
        ("page.html", "<p>NOTICE</p><a href='data:application/octet-stream;base64,PAYLOAD'>x</a>"),
    ],
)
def test_a_library_as_text_in_a_data_file(tmp_path: Path, needy: bytes, name: str, text: str) -> None:
    data = text.replace("NOTICE", "all rights reserved " * 30).replace("PAYLOAD", base64.b64encode(needy).decode())
    assert of(tmp_path, {f"kit/{name}": data.encode(), "kit/__init__.py": b""}).tokens == PLUGIN


@pytest.mark.parametrize("name", ["README.txt", "plugins.json", "LICENSE", "model.tokens"])
def test_a_library_behind_a_long_text(tmp_path: Path, needy: bytes, name: str) -> None:
    data = b"all rights reserved\n" * 400 + needy
    assert of(tmp_path, {f"kit/{name}": data, "kit/__init__.py": b""}).tokens == PLUGIN


@pytest.mark.parametrize("name", ["kernels.txt", "kernels.dat", "kernels"])
def test_a_program_in_ptx_behind_a_long_licence(tmp_path: Path, name: str) -> None:
    program = (
        b"// all rights reserved\n" * 40 + b".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry f() {}\n"
    )
    assert of(tmp_path, {f"kit/{name}": program, "kit/__init__.py": b""}).tokens == DATA
    words = b"PTX begins with .version and .target, then .address_size 64\n" * 40
    assert of(tmp_path, {f"doc/{name}": words, "doc/__init__.py": b""}, name="doc").tokens == {}


@pytest.mark.parametrize(("magic", "backend"), [(b"IMOD", "npu"), (b"ftrt", "cuda")])
def test_compiled_models_are_device_code(tmp_path: Path, magic: bytes, backend: str) -> None:
    audit = of(tmp_path, {"kit/model.bin": magic + bytes(300), "kit/__init__.py": b""})
    assert audit.tokens == {backend: ("data",)}


def test_numbers_and_sections_that_look_like_device_code(tmp_path: Path) -> None:
    body = (
        "const unsigned magic = 0xBA55ED50, other = 0x466243B1;"
        'const char *a = "CCOB", *c = "__CLANG_OFFLOAD_BUNDLE__";'
        '__attribute__((section(".nv_fatbin"), used)) static const int empty[0] = {};'
        "int is_fatbin(const unsigned *p) { return *p == 0xBA55ED50; }"
    )
    audit = of(tmp_path, {"kit/x.so": native(tmp_path, body)})
    assert (audit.tokens, audit.level) == ({}, "ok")


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("kernels.cubin", LFS),
        ("libdevice.10.bc", LFS),
        ("libcudart_static.a", LFS),
        ("kernel.hsaco", LFS),
        ("texture.ptx", b"Pinnacle\0" + bytes(200)),
        ("scene.hip", b"0707070100017777" + b"houdini scene" * 9),
        ("gold.cu", b"0.1 0.2 0.3\n1.1 1.2 1.3\n"),
        ("completions/nvcc", b"complete -F _nvcc nvcc\n"),
        ("doc/ptxas", b"ptxas is NVIDIA's assembler.\n"),
        ("Dockerfile", b"FROM nvidia/cuda:12.4.1-runtime\nRUN pip install nvidia-cublas-cu12\n"),
        ("notes.ipynb", b'{"cells": [{"source": ["ctypes.CDLL(\\"libcuda.so.1\\")"]}]}'),
        ("env.yml", b"dependencies:\n- pytorch-cuda=12.1\n- pip:\n  - nvidia-cublas-cu12\n"),
        ("requirements.txt", b"torch==2.3.0+cu121\nnvidia-cublas-cu12\n"),
        ("binding.pyx", b'cdef extern from "cuda.h":\n    int cuInit(int)\n'),
        ("template.py.in", b'import ctypes\nctypes.CDLL("libcuda.so.1")\n'),
        ("src/lib.rs", b'Library::new("libcuda.so.1")'),
        ("tests/data/ldd.txt", b"libcudart.so.12 => /usr/local/cuda/lib64/libcudart.so.12 (0x1)\n"),
        ("ld.so.conf.d/cuda.conf", b"/usr/local/cuda/lib64\n"),
        ("types/ctypes.pyi", b'def load(name: str = "libcuda.so.1") -> CDLL: ...\n'),
        ("shaders/a.metallib", b"MTLB" + bytes(200)),
    ],
)
def test_names_and_words_that_are_harmless(tmp_path: Path, name: str, data: bytes) -> None:
    audit = of(tmp_path, {f"kit/{name}": data, "kit/__init__.py": b""})
    assert (audit.tokens, audit.level) == ({}, "ok")


@pytest.mark.parametrize(
    "script",
    [
        b"#!/bin/sh\nnvidia-smi\n",
        b"#!/bin/sh\nexport LD_LIBRARY_PATH=/usr/local/cuda/lib64\nexec kit\n",
        b"#!/usr/bin/python3\nimport subprocess\nsubprocess.run(['nvidia-smi'])\n",
        b"#!/usr/bin/env python3\nimport shutil\nHAS = shutil.which('nvcc')\n",
    ],
)
def test_scripts_that_ask_for_tools(tmp_path: Path, script: bytes) -> None:
    audit = of(tmp_path, {"kit-1.0.data/scripts/run": script, "kit/__init__.py": b""})
    assert (audit.tokens, audit.level) == ({}, "ok")


@pytest.mark.parametrize(
    "source",
    [
        'import os\nos.add_dll_directory(r"C:\\CUDA\\bin")\n',
        'import ctypes\nctypes.WinDLL("nvcuda.dll")\n',
        'import ctypes\nctypes.CDLL("/usr/local/cuda/lib/libcuda.dylib")\n',
        'import torch\ntorch.ops.load_library(os.path.join(HERE, "libkit_cuda.so"))\n',
        "import torch\nif torch.cuda.is_available():\n    import flash_attn\n",
        "import triton\n@triton.jit\ndef f(x): pass\n",
        "from numba import cuda\n@cuda.jit\ndef f(x): pass\n",
        'import platform\nIS = "libcuda.so.1" in open("/proc/self/maps").read()\n',
        'class CDLL:\n    """Like ctypes: CDLL("libcuda.so.1")"""\nCDLL("libm.so.6")\n',
        'import logging\nlogging.info("CDLL libcuda.so.1 failed")\n',
        'class Flags:\n    def __init__(self, compiler):\n        self.flags = compiler.find_library("cudart", [])\n',
    ],
    ids=range(11),
)
def test_python_that_is_harmless(tmp_path: Path, source: str) -> None:
    audit = python(tmp_path, source)
    assert (audit.tokens, audit.level) == ({}, "ok")


# --- native code ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--audit", "--depaudit"])
def test_an_audit_library_is_opened_where_it_is_there(tmp_path: Path, option: str) -> None:
    data = native(tmp_path, "int f(void) { return 1; }", options=[f"-Wl,{option}=libcudart.so.12"])
    assert of(tmp_path, {"kit/x.so": data}).tokens == {"cuda": ("soft",)}


def test_weak_functions_of_a_vendor_are_optional(tmp_path: Path) -> None:
    body = "__attribute__((weak)) int cudaMalloc(void **, unsigned long); int f(void) { return cudaMalloc ? 1 : 0; }"
    assert of(tmp_path, {"kit/x.so": native(tmp_path, body)}).tokens == {}


def test_an_indirect_function_of_a_vendor_is_a_stub(tmp_path: Path) -> None:
    body = (
        "static int one(void) { return 1; }\nstatic void *pick(void) { return one; }\n"
        'int cudaMalloc(void) __attribute__((ifunc("pick")));\n'
    )
    assert of(tmp_path, {"kit/x.so": native(tmp_path, body)}).tokens == {"cuda": ("stub",)}


def test_debugging_data_apart(tmp_path: Path) -> None:
    made = library(tmp_path, "x.so", needs=["libcudart.so.12"], options=["-g"])
    subprocess.run(["objcopy", "--only-keep-debug", str(made), str(tmp_path / "x.debug")], check=True)
    audit = of(tmp_path, {"kit/x.so.debug": (tmp_path / "x.debug").read_bytes(), "kit/__init__.py": b""})
    assert (audit.tokens, rules(audit)) == ({}, set())


def test_a_name_among_the_instructions(tmp_path: Path) -> None:
    """A compiler may write a short string as immediate operands; another name stands as a constant."""
    body = (
        "void *f(void) { volatile unsigned long b[2]; b[0] = 0x2e616475636269ULL << 8 | 'l'; b[1] = 0x312e6f73;"
        ' dlopen("libm.so.6", 1); return dlopen((char *)b, 1); }'
    )
    audit = of(tmp_path, {"kit/x.so": native(tmp_path, OPENS + body, options=["-O2"])})
    assert audit.tokens == {"cuda": ("soft",)}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (b"error.rs/opt/rocm/lib/librocm_smi64.sorsmi_init", {"rocm": ("soft",)}),
        (b"LIBTPU_PATH/usr/lib/libtpu.so/usr/local/lib/libtpu.so/", {"tpu": ("soft",)}),
        (b"pathlibnccl.solibnccl.so.2mod", {"cuda": ("soft",)}),
        (b"AMD GPU: librocm_smi64.so not found; metrics disabled", {}),
        (b"see libcuda.source and libnccl.software", {}),
    ],
)
def test_a_name_that_the_next_constant_follows(tmp_path: Path, text: bytes, tokens: dict[str, tuple[str, ...]]) -> None:
    """Rust and Go write constants one behind the other."""
    rust = b"/rustc/90b35a6239c3d8bdabc530a6a0816f7ff89a0aaf/library/std/src/" + text + b"src/main.rs\0"
    body = OPENS + as_c_array(rust, section=".rodata.r", name="r") + "void *f(void) { return dlopen((char *)r, 1); }"
    assert of(tmp_path, {"kit/x.so": native(tmp_path, body)}).tokens == tokens


def test_a_program_in_ptx_as_a_constant(tmp_path: Path) -> None:
    body = (
        'const char *ptx = "//\\n.version 8.3\\n.target sm_90\\n.address_size 64\\n\\n.visible .entry f() { ret; }\\n";'
    )
    audit = of(tmp_path, {"kit/x.so": native(tmp_path, body)})
    assert (audit.tokens, audit.archs.cuda_sm) == ({}, ())
    (finding,) = audit.findings
    assert (finding.rule, finding.backend) == ("device-code-as-text", "cuda")
    words = 'const char *a = ".version ", *b = ".target sm_", *c = ".address_size ";'
    assert rules(of(tmp_path, {"ll/x.so": native(tmp_path, words)}, name="ll")) == set()


def test_names_that_a_compiler_looks_for(tmp_path: Path) -> None:
    """clang's driver in a library holds names of runtimes; a program that opens one holds no driver."""
    driver = 'const char *a = "clang-offload-bundler", *b = "libamdhip64.so"; void *f(void) { return dlopen(a, 1); }'
    assert of(tmp_path, {"kit/x.so": native(tmp_path, OPENS + driver)}).tokens == {}
    other = driver.replace("clang-offload-bundler", "librocblas.so.4")
    assert of(tmp_path, {"two/x.so": native(tmp_path, OPENS + other)}, name="two").tokens == {"rocm": ("soft",)}


def other_elf(*, bits: int, order: str, machine: int, needed: str) -> bytes:
    """A library for another processor with one needed name and no sections."""
    wide, sign = bits == 64, "<" if order == "little" else ">"
    word, size = ("Q", 8) if wide else ("I", 4)
    strings = b"\0" + needed.encode() + b"\0"
    head, entry = (64, 56) if wide else (52, 32)
    dynamic = head + 2 * entry
    table = dynamic + 4 * 2 * size
    total = table + len(strings)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if sign == "<" else 2, 1]) + bytes(9)
    out = ident + struct.pack(f"{sign}HHI3{word}IHHHHHH", 3, machine, 1, 0, head, 0, 0, head, entry, 2, 0, 0, 0)
    for kind, offset, length in ((1, 0, total), (2, dynamic, table - dynamic)):
        if wide:
            out += struct.pack(f"{sign}II6Q", kind, 4, offset, offset, offset, length, length, 8)
        else:
            out += struct.pack(f"{sign}8I", kind, offset, offset, offset, length, length, 4, 4)
    for tag, value in ((1, 1), (5, table), (10, len(strings)), (0, 0)):
        out += struct.pack(f"{sign}2{word}", tag, value)
    return out + strings


@pytest.mark.parametrize(
    ("bits", "order", "machine"), [(32, "little", 3), (32, "big", 20), (64, "big", 22), (32, "little", 40)]
)
def test_other_classes_and_byte_orders(tmp_path: Path, bits: int, order: str, machine: int) -> None:
    data = other_elf(bits=bits, order=order, machine=machine, needed="libcudart.so.12")
    audit = of(tmp_path, {"kit/x.so": data})
    assert audit.tokens == {"cuda": ("hard",)}
    assert "foreign-machine" in rules(audit)


@pytest.mark.parametrize(
    "needed",
    [
        "libc_sec.so",
        "liberror_manager.so",
        "libcufflinks.so.1",
        "libcudf.so",
        "libhipster.so",
        "libcudacpp.so.2",
        "libzenoh.so",
        "libmusashi.so",
        "libtpuh.so",
    ],
)
def test_names_that_only_begin_like_a_vendors(tmp_path: Path, needed: str) -> None:
    data = library(tmp_path, "x.so", needs=[needed]).read_bytes()
    assert of(tmp_path, {"kit/x.so": data}).tokens == {}


@pytest.mark.parametrize(
    ("needed", "backend"),
    [
        ("libhiprtc.so.6", "rocm"),
        ("libcudart-8f0b2a1c.so.11.8.89", "cuda"),
        ("libze_loader-1a2b3c4d.so.1", "xpu"),
        ("/opt/rocm/lib/libamdhip64.so.6", "rocm"),
        ("libmkl_sycl_dft.so.6", "xpu"),
        ("libge_common_base.so", "npu"),
        ("libnvoptix.so.1", "cuda"),
    ],
)
def test_more_needed_names(tmp_path: Path, needed: str, backend: str) -> None:
    library(tmp_path, "x.so")
    patchelf("--add-needed", needed, tmp_path / "x.so")
    assert of(tmp_path, {"kit/x.so": (tmp_path / "x.so").read_bytes()}).tokens == {backend: ("hard",)}


def test_a_search_path_alone_is_harmless(tmp_path: Path) -> None:
    data = native(tmp_path, "int f(void) { return 1; }", options=["-Wl,-rpath,/usr/local/cuda/lib64"])
    audit = of(tmp_path, {"kit/x.so": data})
    assert (audit.tokens, audit.level) == ({}, "ok")


def test_a_tool_under_the_name_of_a_vendors(tmp_path: Path) -> None:
    program = without_sections(native(tmp_path, "int main(void) { return 0; }"))
    assert of(tmp_path, {"kit/bin/ptxas": program, "kit/__init__.py": b""}).tokens == DATA
    script = b'#!/bin/sh\nexec /opt/nvidia/nvcc.real "$@"\n'
    assert of(tmp_path, {"kit/bin/nvcc": script, "kit/__init__.py": b""}, name="two").tokens == DATA


def test_device_sources_beside_what_was_compiled_of_them(tmp_path: Path) -> None:
    """A wheel for another system has compiled files too, and compiles nothing on first use."""
    kernel = b"__global__ void f() {}\n"
    files = {"kit/a.cu": kernel, "kit/a.dylib": b"\xcf\xfa\xed\xfe" + bytes(200)}
    assert of(tmp_path, files).tokens == {}
    assert of(tmp_path, {"src/a.cu": kernel}, name="src").tokens == {"cuda": ("src",)}


def test_static_objects_for_later_linking(tmp_path: Path) -> None:
    (tmp_path / "o.c").write_text("int cudaMalloc(void **, long); int f(void) { return cudaMalloc(0, 1); }")
    subprocess.run(["gcc", "-c", "-o", str(tmp_path / "o.o"), str(tmp_path / "o.c")], check=True)
    audit = of(tmp_path, {"kit/o.o": (tmp_path / "o.o").read_bytes(), "kit/__init__.py": b""})
    assert (audit.tokens, audit.level) == ({}, "ok")
    code = as_c_array(fatbin("sm_90"))
    (tmp_path / "k.c").write_text(code)
    subprocess.run(["gcc", "-c", "-o", str(tmp_path / "k.o"), str(tmp_path / "k.c")], check=True)
    audit = of(tmp_path, {"dev/k.o": (tmp_path / "k.o").read_bytes(), "dev/__init__.py": b""}, name="dev")
    assert audit.tokens == {"cuda": ("device",)}


# --- metadata ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requires", "tokens"),
    [
        (["jaxlib==0.4.30+cuda12.cudnn91"], {"cuda": ("meta",)}),
        (["torch===2.3.0+cu121"], {"cuda": ("meta",)}),
        (["torchvision==0.18.0+cu121; extra == 'gpu'"], {"cuda": ("meta-extra",)}),
        (["torch==2.3.0+rocm6.0"], {"rocm": ("meta",)}),
        (["torch==2.9.0+xpu"], {"xpu": ("meta",)}),
        (["torch==2.3.*"], {"cuda": ("meta-torch",)}),
        (["nvidia-cublas-cu12; extra != 'cpu'"], {"cuda": ("meta",)}),
        (["nvidia-cublas-cu12; platform_release != ''"], {"cuda": ("meta",)}),
        (["nvidia-cublas-cu12; platform_version >= '1'"], {"cuda": ("meta",)}),
        (["nvidia-cublas-cu12; python_full_version > '3.11.0'"], {"cuda": ("meta",)}),
        (["nvidia-cublas-cu12; implementation_name == 'pypy'"], {}),
        (["nvidia-cublas-cu12; platform_machine == 'aarch64'"], {}),
        (["nvidia-cublas-cu12; platform_system in 'Linux Darwin'"], {"cuda": ("meta",)}),
        (["nvidia-cublas-cu12; os_name == 'posix' and extra == 'GPU_All'"], {"cuda": ("meta-extra",)}),
        (["nvidia-cublas-cu12; 'gpu' in extras"], {"cuda": ("meta-extra",)}),
        (["tensorflow-gpu>=2"], {"cuda": ("meta",)}),
        (["paddlepaddle-gpu"], {"cuda": ("meta",)}),
        (["tensorflow-rocm"], {"rocm": ("meta",)}),
        (["rocm-bindings-hip"], {"rocm": ("meta",)}),
        (["rocm-docs-core"], {}),
        (["openmm-cuda-12; extra == 'cuda12'"], {"cuda": ("meta-extra",)}),
        (
            ["dgl @ https://data.dgl.ai/wheels/cu121/dgl-2.1.0%2Bcu121-cp311-cp311-manylinux1_x86_64.whl"],
            {"cuda": ("meta",)},
        ),
        (["cupy"], {"cuda": ("meta",)}),
        (["tensorflow-cpu"], {}),
        (["tensorflow"], {}),
        (["nvidia-sphinx-theme", "cudo", "rocket", "tpuf", "cudaless"], {}),
        (["torch==2.3.0+cpu ; extra == 'gpu'"], {}),
    ],
)
def test_requirements_of_more_kinds(tmp_path: Path, requires: list[str], tokens: dict[str, tuple[str, ...]]) -> None:
    assert of(tmp_path, {"kit/__init__.py": b""}, *requires).tokens == tokens


def with_metadata(folder: Path, text: str, name: str = "kit") -> TargetAudit:
    """A wheel with these bytes as METADATA."""
    made = wheel(folder, name, {f"{name}/__init__.py": b""})
    target = folder / "again" / made.name
    target.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(target, "w") as out:
        for info in source.infolist():
            out.writestr(info, text.encode() if info.filename.endswith("/METADATA") else source.read(info))
    return judged(target)


@pytest.mark.parametrize(
    ("lines", "tokens"),
    [
        ("requires-dist: nvidia-cublas-cu12\n", {"cuda": ("meta",)}),
        ("Requires-Dist:nvidia-cublas-cu12\r\n", {"cuda": ("meta",)}),
        ("Dynamic: Requires-Dist\nRequires-Dist: nvidia-cublas-cu12\n", {"cuda": ("meta",)}),
        ("Requires-External: libcudart (>=12)\n", {}),
        (
            "Provides-Extra: gpu\nDefault-Extra: gpu\nRequires-Dist: nvidia-cublas-cu12; extra == 'gpu'\n",
            {"cuda": ("meta-extra",)},
        ),
        ("Description: pip install\n        Requires-Dist: nvidia-cublas-cu12\n", {}),
        ("\nRequires-Dist: nvidia-cublas-cu12\n", {}),
        ("Keywords: cuda,nvidia-cublas-cu12\nClassifier: Environment :: GPU :: NVIDIA CUDA :: 12\n", {}),
        ("Obsoletes-Dist: nvidia-cublas-cu12\nProvides-Dist: torch\n", {}),
    ],
)
def test_metadata_fields(tmp_path: Path, lines: str, tokens: dict[str, tuple[str, ...]]) -> None:
    assert with_metadata(tmp_path, f"Metadata-Version: 2.1\nName: kit\nVersion: 1.0\n{lines}").tokens == tokens


def test_requirements_of_an_egg_are_not_read_by_installers(tmp_path: Path) -> None:
    files = {"kit.egg-info/requires.txt": b"nvidia-cublas-cu12\n", "kit/__init__.py": b""}
    assert of(tmp_path, files).tokens == {}


# --- the archive ---------------------------------------------------------------------------------------------------


def test_a_tar_of_wheels_tells_what_it_does_not_open(tmp_path: Path, needy: bytes) -> None:
    inner = wheel(tmp_path, "inner", {"inner/x.so": needy}).read_bytes()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo("inner.whl")
        info.size = len(inner)
        archive.addfile(info, io.BytesIO(inner))
    audit = of(tmp_path, {"kit/bundle.tgz": out.getvalue(), "kit/__init__.py": b""})
    assert audit.tokens == PLUGIN or "unread-archive" in rules(audit)


def test_metadata_of_two_distributions(tmp_path: Path) -> None:
    second = b"Metadata-Version: 2.1\nName: other\nVersion: 1.0\nRequires-Dist: nvidia-cublas-cu12\n"
    audit = of(tmp_path, {"other-1.0.dist-info/METADATA": second, "kit/__init__.py": b""})
    assert audit.level == "block"
    assert any("other-1.0.dist-info" in item.evidence for item in audit.findings if item.rule == "unsafe-wheel")
    inside = {"kit/_vendor/other-1.0.dist-info/METADATA": second, "kit/__init__.py": b""}
    assert of(tmp_path, inside, name="vendor").level == "ok"


def test_a_wheel_behind_other_bytes(tmp_path: Path, needy: bytes) -> None:
    path = wheel(tmp_path, "kit", {"kit/x.so": needy})
    path.write_bytes(b"#!/bin/sh\nexit 0\n" + path.read_bytes())
    assert judged(path).tokens == {"cuda": ("hard",)}


def test_names_that_differ_in_case_alone(tmp_path: Path, needy: bytes) -> None:
    plain = library(tmp_path, "y.so").read_bytes()
    assert of(tmp_path, {"kit/X.so": plain, "kit/x.so": needy}).tokens == {"cuda": ("hard",)}
