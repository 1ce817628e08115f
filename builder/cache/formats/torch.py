"""PyTorch: mega-cache files, Inductor's cache folders, AOTInductor packages.

A mega-cache (`torch.compiler.save_cache_artifacts`) is a CRC-32 (not in the first versions), the version of the
encoding (1), and then groups: a kind in base64, a number, and as many pairs of key and content; numbers have eight
bytes, the highest first. Before that it was one pickle. Source: torch/utils/_appending_byte_serializer.py,
torch/compiler/_cache.py. Contents of kinds inductor and aot_autograd are pickles too: they are looked at and never
unpickled.
Inductor keeps graphs under fxgraph/<2>/<key>/, those of AOTAutograd under aotautograd/<key>/, and what a compiler made
beside them (torch/_inductor/codecache.py). A package of AOTInductor (.pt2) is a zip file with a `*_metadata.json` for
each object (torch/_inductor/codecache.py, `get_device_information`; torch/export/pt2_archive).
"""

from __future__ import annotations

import base64
import binascii
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping

from builder.cache.formats.cursor import Cursor
from builder.cache.formats.nvidia import capabilities
from builder.cache.formats.pickles import Pickle, read_pickle
from builder.cache.formats.stream import BlobStream
from builder.cache.formats.values import Blob, BrokenEngine, Header, json_object

__all__ = ["Artifact", "artifacts", "read_aoti", "read_inductor", "read_mega_cache"]

_ENCODING = 1
_MAX_ARTIFACTS = 100_000
_MAX_KEY = 4096
_MAX_JSON = 1 << 16
_MAX_MEMBERS = 50_000
_CHUNK = 1 << 20
_SCAN = 64 << 20
_DEVICES = frozenset({"cpu", "cuda", "xpu", "mps", "npu", "hpu", "mtia", "xla"})
_TARGET = re.compile(rb'"target": ?\{"backend": ?"([a-z]{1,16})", ?"arch": ?"?([A-Za-z0-9_:+.-]{1,32})"?')
_GRAPH_PATH = re.compile(r"(?:^|/)(fxgraph/[a-z0-9]{2}|aotautograd)/([a-z0-9]+)/[^/]+$")

_AOTI = {
    "AOTI_DEVICE_KEY": "device-type",
    "AOTI_CPU_ISA": "cpu-isa",
    "AOTI_COMPUTE_CAPABILITY": "compute-capability",
}


class Artifact:
    """One cached thing inside a mega-cache: kind, key, and where its content is."""

    __slots__ = ("key", "kind", "offset", "size")

    def __init__(self, kind: str, key: str, offset: int, size: int) -> None:
        self.kind = kind
        self.key = key
        self.offset = offset
        self.size = size


def artifacts(blob: Blob) -> Iterator[Artifact]:
    """The artefacts of a mega-cache in order; `BrokenEngine` where a length cannot be. The sum is not checked."""
    cursor = Cursor(blob)
    if int.from_bytes(blob.read(0, 8), "big") != _ENCODING:
        cursor.skip(4, "the checksum")
    version = cursor.big(8, "the version of the encoding")
    if version != _ENCODING:
        raise cursor.fault(f"version {version} of the encoding is not known; {_ENCODING} is", at=cursor.at - 8)
    found = 0
    while cursor.left:
        kind = _text(cursor, "a kind of artefacts")
        count = cursor.big(8, "the number of artefacts")
        found += count
        if found > _MAX_ARTIFACTS:
            raise cursor.fault(f"more than {_MAX_ARTIFACTS} artefacts", at=cursor.at - 8)
        for _ in range(count):
            key = _text(cursor, "the key of an artefact")
            size = cursor.big(8, "the length of an artefact")
            offset = cursor.at
            cursor.skip(size, f"the artefact {key}")
            yield Artifact(kind, key, offset, size)


def _text(cursor: Cursor, what: str) -> str:
    start = cursor.at
    size = cursor.big(8, f"the length of {what}")
    if size > _MAX_KEY:
        raise cursor.fault(f"{what} of {size} bytes is longer than {_MAX_KEY}", at=start)
    try:
        found = base64.b64decode(cursor.take(size, what), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise cursor.fault(f"{what} is not text in base64", at=start) from None
    if not found.isprintable():
        raise cursor.fault(f"{what} is not text", at=start)
    return found


def read_mega_cache(blob: Blob) -> Header:
    """What a mega-cache holds: its checksum is checked, its pickles are looked at, nothing is loaded."""
    if blob.read(0, 1) == b"\x80":
        old = read_pickle(blob)
        return Header(
            format="torch-mega-cache",
            properties={"container": "pickle"},
            unknown=dict.fromkeys(
                ("torch", "device-type"), "one pickle of torch 2.6; build it again with a newer torch"
            ),
            notes=(_pickle_note(old.imports),),
        )
    if int.from_bytes(blob.read(0, 8), "big") != _ENCODING:
        _check_sum(blob)
    counts: Counter[str] = Counter()
    graphs: list[Pickle] = []
    targets: set[tuple[str, str]] = set()
    for item in artifacts(blob):
        counts[item.kind] += 1
        if item.kind in ("inductor", "aot_autograd") and item.size:
            part = blob.part(item.offset, item.size, blob.name)
            targets |= _targets(part)
            graphs.append(_graph(part, item.offset))
    properties = {
        "container": str(_ENCODING),
        "artifacts": " ".join(f"{kind}:{count}" for kind, count in sorted(counts.items())),
    }
    return _of_graphs("torch-mega-cache", properties, graphs, targets)


def _check_sum(blob: Blob) -> None:
    stated, found, at = int.from_bytes(blob.read(0, 4), "big"), 0, 4
    while piece := blob.read(at, _CHUNK):
        found = zlib.crc32(piece, found)
        at += len(piece)
    if found != stated:
        raise BrokenEngine(blob.name, f"its checksum is {stated:08x} and its content gives {found:08x}", offset=0)


def _graph(part: Blob, offset: int) -> Pickle:
    try:
        return read_pickle(part)
    except BrokenEngine as error:
        raise BrokenEngine(part.name, error.why.rpartition(", at byte ")[0], offset=offset + error.offset) from None


def _targets(part: Blob) -> set[tuple[str, str]]:
    """Backend and architecture of the Triton kernels bundled with a graph, from their metadata."""
    return {(match[1].decode(), match[2].decode()) for match in _TARGET.finditer(part.read(0, _SCAN))}


def _devices(graph: Pickle) -> set[str]:
    """The device types that a graph names: texts between two keys of its own dictionary."""
    texts = graph.texts
    if "device_types" not in texts:
        return set()
    start = texts.index("device_types")
    stop = next((at for at in range(start, len(texts)) if texts[at] == "device_idxs"), start + 32)
    return set(texts[start:stop]) & _DEVICES


def _of_graphs(name: str, properties: dict[str, str], graphs: list[Pickle], targets: set[tuple[str, str]]) -> Header:
    devices = set().union(*map(_devices, graphs)) if graphs else set()
    if devices:
        properties["device-type"] = " ".join(sorted(devices))
    unknown = dict.fromkeys(("torch", "triton"), "it is folded into the keys; only their digests are kept")
    unknown["cpu-isa"] = "it is folded into the keys; only their digests are kept"
    properties |= target_properties(targets)
    if "compute-capability" not in properties and "gfx" not in properties and devices - {"cpu"}:
        unknown["compute-capability"] = "no kernel in it names the device it was compiled for"
    imports = sorted({one for graph in graphs for one in graph.imports})
    notes = (_pickle_note(tuple(imports)),) if graphs else ()
    return Header(format=name, properties=properties, unknown=unknown, notes=notes)


def target_properties(targets: set[tuple[str, str]]) -> dict[str, str]:
    """Properties of Triton's targets (backend, architecture); `target` when there is one alone."""
    found: dict[str, str] = {}
    if targets:
        found["backend"] = " ".join(sorted({backend for backend, _ in targets}))
    cc = capabilities(arch for backend, arch in targets if backend == "cuda")
    if cc:
        found["compute-capability"] = cc
    gfx = " ".join(sorted({arch for backend, arch in targets if backend == "hip"}))
    if gfx:
        found["gfx"] = gfx
    soc = " ".join(sorted({arch for backend, arch in targets if backend == "npu"}))
    if soc:
        found["soc"] = soc
    if len(targets) == 1:
        [(backend, arch)] = targets
        found["target"] = f"sm_{arch.removeprefix('sm_').removeprefix('sm')}" if backend == "cuda" else arch
    return found


def _pickle_note(imports: tuple[str, ...]) -> str:
    modules = sorted({name.split(".", 1)[0] for name in imports})
    return f"it holds pickles, which run code when loaded; they import from: {', '.join(modules) or 'nothing'}"


def read_inductor(tree: Mapping[str, Blob]) -> Header:
    """Inductor's cache folder (TORCHINDUCTOR_CACHE_DIR) by its files: graphs, and what they were compiled for."""
    graphs: list[Pickle] = []
    targets: set[tuple[str, str]] = set()
    counts: Counter[str] = Counter()
    isa: set[str] = set()
    for path in sorted(tree):
        blob = tree[path]
        match = _GRAPH_PATH.search(path)
        if match:
            counts[match[1].split("/", 1)[0]] += 1
            targets |= _targets(blob)
            graphs.append(read_pickle(blob))
        elif path.endswith("_metadata.json") and blob.size <= _MAX_JSON:
            isa |= {value for key, value in _metadata(blob).items() if key == "cpu-isa"}
    if not graphs:
        raise BrokenEngine("the folder", "there is no graph under fxgraph/ or aotautograd/ in it", offset=0)
    properties = {"artifacts": " ".join(f"{kind}:{count}" for kind, count in sorted(counts.items()))}
    header = _of_graphs("inductor", properties, graphs, targets)
    if not isa:
        return header
    unknown = {key: why for key, why in header.unknown.items() if key != "cpu-isa"}
    told = {**header.properties, "cpu-isa": " | ".join(sorted(isa))}
    return Header(format=header.format, properties=told, unknown=unknown, notes=header.notes)


def _metadata(blob: Blob) -> dict[str, str]:
    """The properties of a `*_metadata.json`."""
    value = json_object(blob, blob.name, limit=_MAX_JSON)
    found = {name: str(value[key]) for key, name in _AOTI.items() if value.get(key) and str(value[key]).isprintable()}
    system, machine = value.get("AOTI_PLATFORM"), value.get("AOTI_MACHINE")
    if isinstance(system, str) and isinstance(machine, str) and f"{system}{machine}".isidentifier():
        found["platform"] = f"{system}-{machine}"
    if "compute-capability" in found:
        targets = target_properties(
            {("cuda" if found.get("device-type") == "cuda" else "", found.pop("compute-capability"))}
        )
        found |= {key: told for key, told in targets.items() if key != "backend"}
    return found


def read_aoti(blob: Blob) -> Header:
    """A package of AOTInductor; the objects in it must agree on what they are for."""
    properties: dict[str, str] = {}
    try:
        with zipfile.ZipFile(BlobStream(blob)) as archive:
            members = archive.infolist()
            if len(members) > _MAX_MEMBERS:
                raise BrokenEngine(blob.name, f"it lists {len(members)} members", offset=0)
            metadata = [
                one for one in members if one.filename.endswith("_metadata.json") and one.file_size <= _MAX_JSON
            ]
            for member in metadata:
                with archive.open(member) as file:
                    data = file.read(_MAX_JSON)
                for key, value in _metadata(Blob.of_bytes(data, f"{blob.name}: {member.filename}")).items():
                    if properties.setdefault(key, value) != value:
                        why = f"its objects are for different machines: {key} is {properties[key]} and {value}"
                        raise BrokenEngine(blob.name, why, offset=member.header_offset)
            for member in members:
                if member.filename.endswith("/archive_version") and member.file_size <= 16:
                    with archive.open(member) as file:
                        properties["pt2-version"] = re.sub(r"[^0-9.]", "", file.read(16).decode("ascii", "replace"))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise BrokenEngine(blob.name, f"it cannot be read as a zip file ({error})", offset=0) from None
    if not metadata:
        raise BrokenEngine(blob.name, "there is no object of AOTInductor in it", offset=0)
    unknown = {"torch": "a package does not name the version that made it"}
    if properties.get("device-type") == "cuda":
        unknown["driver"] = "a package does not name it"
    return Header(format="aotinductor", properties=properties, unknown=unknown)
