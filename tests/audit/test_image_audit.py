"""Auditing images: what the finished file system holds counts, and every file has an owner."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
import zstandard

from builder.audit.layers import Held, LayerFacts, merged
from builder.names import Digest
from builder.registry.layout import Layout
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType
from tests import schemas
from tests.audit.inside import Inside
from tests.audit.make import as_c_array, fatbin, library, wheel

SITE = "opt/venv/lib/python3.11/site-packages"


def tar_of(files: Mapping[str, bytes], links: Iterable[tuple[str, str, bytes]] = ()) -> bytes:
    """A tar of files, then of links: (path, target, tar type)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for path, target, kind in links:
            info = tarfile.TarInfo(path)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    return out.getvalue()


def pushed(folder: Path, *tars: bytes, tag: str = "app", zstd: bool = False) -> Digest:
    """An image of these layers in an OCI layout."""
    layout = Layout(folder)
    descriptors = []
    for tar in tars:
        data = zstandard.compress(tar) if zstd else gzip.compress(tar, mtime=0)
        kind = MediaType.LAYER_ZSTD if zstd else MediaType.LAYER_GZIP
        descriptors.append(Descriptor(media_type=kind, digest=Digest.of(data), size=len(data)))
        layout.put_blob(descriptors[-1], BytesSource(data))
    raw = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers"}}).encode()
    config = Descriptor(media_type=MediaType.CONFIG, digest=Digest.of(raw), size=len(raw))
    layout.put_blob(config, BytesSource(raw))
    manifest = {
        "schemaVersion": 2,
        "mediaType": MediaType.MANIFEST,
        "config": config.to_json(),
        "layers": [descriptor.to_json() for descriptor in descriptors],
    }
    return layout.put_manifest(Manifest(MediaType.MANIFEST, json.dumps(manifest).encode()), tag=tag).digest


def installed(tmp_path: Path, *wheels: Path) -> dict[str, bytes]:
    """What a real installer writes for these wheels, as the files of a layer."""
    target = tmp_path / "site"
    options = ["-q", "--no-deps", "--no-index", "--no-compile", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *map(str, wheels)], check=True)
    return {
        f"{SITE}/{path.relative_to(target)}": path.read_bytes() for path in sorted(target.rglob("*")) if path.is_file()
    }


@pytest.fixture
def dirty(tmp_path: Path) -> dict[str, bytes]:
    """Two packages installed: `top` asks for `quiet`, which needs CUDA and carries device code."""
    made = library(tmp_path, "x.so", code=as_c_array(fatbin("sm_90")), needs=["libcudart.so.12"])
    quiet = wheel(
        tmp_path,
        "quiet",
        {"quiet/x.so": made.read_bytes() + bytes(5 << 20), "quiet/__init__.py": b""},
        tag="py3-none-any",
    )
    top = wheel(tmp_path, "top", {"top.py": b""}, requires=["quiet", "absent-cuda; extra == 'x'"], tag="py3-none-any")
    return installed(tmp_path, quiet, top)


def audit(run: Inside, folder: Path, backend: str = "cpu") -> tuple[int, dict[str, dict[str, object]]]:
    result = run("audit", f"oci:{folder}:app", "--backend", backend, "--json")
    document = schemas.document(result, "audit")
    return result.returncode, {target["name"]: target for target in document["targets"]}


@pytest.mark.parametrize("zstd", [False, True])
def test_an_installed_package_is_judged_and_its_chain_is_told(
    builder: Inside, tmp_path: Path, dirty: dict[str, bytes], zstd: bool
) -> None:
    pushed(tmp_path / "layout", tar_of({"etc/os-release": b"ID=debian\n"}), tar_of(dirty), zstd=zstd)
    code, targets = audit(builder, tmp_path / "layout")
    assert code == 1
    assert targets["top"]["level"] == targets["files-outside-packages"]["level"] == "ok"
    quiet = targets["quiet"]
    assert quiet["tokens"] == {"cuda": ["hard", "device"]}
    assert quiet["file"] == f"/{SITE}/quiet-1.0.dist-info"
    assert isinstance(quiet["archs"], dict)
    assert quiet["archs"]["cuda_sm"] == ["sm_90"]
    assert isinstance(quiet["findings"], list)
    assert {(found["path"], tuple(found["chain"])) for found in quiet["findings"]} == {("quiet/x.so", ("top", "quiet"))}
    again, _ = audit(builder, tmp_path / "layout", "cuda")
    assert again == 0


def test_a_file_that_no_package_owns_is_found(builder: Inside, tmp_path: Path) -> None:
    made = library(tmp_path, "libcudart.so.12", soname="libcudart.so.12")
    pushed(tmp_path / "layout", tar_of({"usr/lib/x86_64-linux-gnu/renamed.bin": made.read_bytes()}))
    _, targets = audit(builder, tmp_path / "layout")
    assert targets["files-outside-packages"]["tokens"] == {"cuda": ["bundled"]}
    assert targets["files-outside-packages"]["level"] == "carry"


def test_what_a_later_layer_removes_or_replaces_is_gone(
    builder: Inside, tmp_path: Path, dirty: dict[str, bytes]
) -> None:
    whiteout = tar_of({f"{SITE}/quiet/.wh.x.so": b""})
    pushed(tmp_path / "removed", tar_of(dirty), whiteout)
    assert audit(builder, tmp_path / "removed")[0] == 0
    pushed(tmp_path / "replaced", tar_of(dirty), tar_of({f"{SITE}/quiet/x.so": b"nothing"}))
    assert audit(builder, tmp_path / "replaced")[0] == 0
    pushed(tmp_path / "opaque", tar_of(dirty), tar_of({"opt/venv/.wh..wh..opq": b"", "opt/venv/new": b""}))
    code, targets = audit(builder, tmp_path / "opaque")
    assert code == 0
    assert set(targets) == {"files-outside-packages"}


def test_an_image_in_a_registry(builder: Inside, tmp_path: Path, dirty: dict[str, bytes], registry_host: str) -> None:
    digest = pushed(tmp_path / "layout", tar_of(dirty))
    name = f"{registry_host}/audit/dirty:1"
    subprocess.run(
        ["skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{tmp_path / 'layout'}:app", f"docker://{name}"],
        check=True,
    )
    result = builder("audit", name, "--backend", "cpu", "--json")
    assert result.returncode == 1
    assert {target["sha256"] for target in schemas.document(result, "audit")["targets"]} == {digest.hex}


def test_a_damaged_layer_is_told(builder: Inside, tmp_path: Path) -> None:
    pushed(tmp_path / "layout", tar_of({"a": b"x" * 4000})[:700])
    document = schemas.error(builder("audit", f"oci:{tmp_path / 'layout'}:app", "--backend", "cpu", "--json"), 3)
    assert document["kind"] == "bad-layer"


def entries(*found: tuple[str, str, str]) -> LayerFacts:
    return LayerFacts(entries=found, elf=(), python=(), members=(), texts={})  # type: ignore[arg-type]


def test_files_under_a_linked_folder_and_hard_links_have_one_place() -> None:
    base = entries(("usr/lib/a.so", "file", ""), ("lib", "symlink", "usr/lib"))
    app = entries(("lib/b.so", "file", ""), ("lib/a.so", "file", ""), ("opt/c.so", "hardlink", "lib/b.so"))
    assert merged([base, app]) == {
        "usr/lib/a.so": Held(1, "lib/a.so"),
        "usr/lib/b.so": Held(1, "lib/b.so"),
        "opt/c.so": Held(1, "lib/b.so"),
    }
    assert merged([base, entries(("lib/.wh", "file", ""), ("lib/a.so", "whiteout", ""))]) == {
        "usr/lib/.wh": Held(1, "lib/.wh")
    }


def test_links_that_lead_round_in_circles_end() -> None:
    loop = entries(("a", "symlink", "b"), ("b", "symlink", "a"), ("a/x", "file", ""))
    assert list(merged([loop]).values()) == [Held(0, "a/x")]


def marked(tmp_path: Path, site: str, *more: str) -> Path:
    """An image whose package `top` asks for `quiet` on Python 3.12 alone, installed in `site`."""
    quiet = wheel(tmp_path, "quiet", {"quiet.py": b""}, tag="py3-none-any")
    top = wheel(
        tmp_path,
        "nvidia-top",
        {"top.py": b""},
        requires=["nvidia-quiet; python_version == '3.12'"],
        tag="py3-none-any",
    )
    own = wheel(tmp_path, "nvidia-quiet", {"own.py": b""}, tag="py3-none-any")
    files = {path.replace(SITE, site): data for path, data in installed(tmp_path, quiet, top, own).items()}
    pushed(tmp_path / "layout", tar_of({**files, **dict.fromkeys(more, b"")}))
    return tmp_path / "layout"


def asks(run: Inside, layout: Path, *options: str) -> bool:
    """Whether the marker holds."""
    result = run("audit", f"oci:{layout}:app", "--backend", "cuda", "--json", "-v", *options)
    targets = {target["name"]: target for target in schemas.document(result, "audit")["targets"]}
    return "meta" in targets["nvidia-top"]["tokens"].get("cuda", [])


@pytest.mark.parametrize(
    ("site", "more", "expected"),
    [
        ("usr/lib/python3.12/site-packages", (), True),
        ("usr/lib/python3.11/site-packages", ("usr/bin/python3.12",), False),
        ("usr/lib/python3/dist-packages", ("usr/bin/python3.12",), True),
        ("usr/lib/python3/dist-packages", ("usr/bin/python3.13",), False),
    ],
)
def test_markers_are_read_for_the_python_of_the_image(
    builder: Inside, tmp_path: Path, site: str, more: tuple[str, ...], expected: bool
) -> None:
    layout = marked(tmp_path, site, *more)
    assert asks(builder, layout) is expected
    assert asks(builder, layout, "--python", "3.12")


def test_an_image_that_does_not_tell_its_python_is_asked_about(builder: Inside, tmp_path: Path) -> None:
    layout = marked(tmp_path, "usr/lib/python3/dist-packages", "usr/bin/python3.12", "opt/bin/python3.11")
    found = schemas.error(builder("audit", f"oci:{layout}:app", "--backend", "cuda", "--json"), 4)
    assert "3.11 and 3.12" in found["why"]
    assert asks(builder, layout, "--python", "3.12")


def test_the_processor_is_that_of_the_image(builder: Inside, tmp_path: Path, dirty: dict[str, bytes]) -> None:
    pushed(tmp_path / "layout", tar_of(dirty))
    result = builder("audit", f"oci:{tmp_path / 'layout'}:app", "--backend", "cpu", "--json", "--arch", "aarch64")
    assert "is for x86_64" in schemas.error(result, 2)["what"]


def test_every_way_to_an_installed_package(builder: Inside, tmp_path: Path, dirty: dict[str, bytes]) -> None:
    other = wheel(tmp_path, "other", {"other.py": b""}, requires=["top", "quiet"], tag="py3-none-any")
    pushed(tmp_path / "layout", tar_of({**dirty, **installed(tmp_path, other)}))
    result = builder("audit", f"oci:{tmp_path / 'layout'}:app", "--backend", "cpu", "--json", "--all-chains")
    assert schemas.document(result, "audit")["chains"] == {
        "quiet": {"ways": [["other", "quiet"], ["other", "top", "quiet"]], "more": False}
    }


def test_two_installed_packages_that_wrote_one_file(builder: Inside, tmp_path: Path) -> None:
    """FR-04 in an image: the RECORDs of both list the file, and only one of them can be right."""
    files: dict[str, bytes] = {}
    for name, code in (("triton", b"main"), ("triton-ascend", b"ascend")):
        made = wheel(tmp_path, name, {"triton/__init__.py": code, "triton/same.py": b""}, tag="py3-none-any")
        files |= installed(tmp_path / name, made)
    pushed(tmp_path / "layout", tar_of(files))
    result = builder("audit", f"oci:{tmp_path / 'layout'}:app", "--backend", "npu", "--json")
    assert result.returncode == 1
    (finding,) = schemas.document(result, "audit")["findings"]
    assert (finding["rule"], finding["path"]) == ("two-owners-of-one-path", f"/{SITE}/triton/__init__.py")
