"""Engines through a registry: what a second node fetches of a compiler cache that it holds an earlier state of.

    python bench/engines.py FOLDER MORE [--write]

FOLDER and MORE are two states of one cache folder of Inductor, for example before and after one more model was compiled
into it. Both are pushed to the registry of the operating system's package (docker-registry), started here; another
cache pulls the first, then the second. Bytes and requests are counted on the wire. `--write` puts the figures into
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from report import conditions, write_section

sys.path.insert(0, str(Path(__file__).parent.parent))

from builder.cache import EngineCache, engine_key, engine_kind
from builder.cache.pull import find, pull
from builder.cache.push import push
from builder.events import SilentReporter
from builder.names import Digest, RegistryRef
from builder.node.values import NodeClass
from builder.registry.client import Remote
from builder.registry.dsse import read_key, read_private_key
from builder.registry.manifests import canonical_json
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType
from tests import services

QUIET = SilentReporter()
NODE = NodeClass(name="bench", backend="cpu", arch="x86_64", cpu_level="x86-64-v3")


class Counting(httpx.BaseTransport):
    """Counts requests and the bytes of answers."""

    def __init__(self) -> None:
        self.inner = httpx.HTTPTransport()
        self.requests = self.received = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on."""
        self.requests += 1
        answer = self.inner.handle_request(request)
        if request.method == "GET":
            self.received += int(answer.headers.get("Content-Length", 0))
        return answer

    def close(self) -> None:
        """Let go of the connections."""
        self.inner.close()


@dataclass(frozen=True, slots=True)
class Row:
    """One step."""

    what: str
    seconds: float
    requests: int
    size: int


def image(remote: Remote) -> Digest:
    """An image that the engines are attached to."""
    config = b"{}"
    blob = Descriptor(media_type=MediaType.CONFIG, digest=Digest.of(config), size=len(config))
    remote.put_blob(blob, BytesSource(config))
    document = {"schemaVersion": 2, "mediaType": MediaType.MANIFEST, "config": blob.to_json(), "layers": []}
    return remote.put_manifest(Manifest(MediaType.MANIFEST, canonical_json(document)), tag="1").digest


def measure(folders: list[Path], work: Path, host: str) -> tuple[list[Row], list[tuple[int, int]]]:
    """The rows, and files and bytes of each folder."""
    key = Ed25519PrivateKey.generate()
    (work / "k.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (work / "k.pub").write_bytes(public)
    counting = Counting()
    remote = Remote.open(RegistryRef(host, "bench/app"), environ={}, reporter=QUIET, transport=counting)
    made = image(remote)
    ours, theirs = EngineCache(work / "ours"), EngineCache(work / "theirs")
    rows: list[Row] = []
    sizes = []
    kind = engine_kind("inductor")
    for number, folder in enumerate(folders):
        properties = {"torch": "2.13.0"}
        entry = ours.put(engine_key(kind, model=Digest.of(bytes([number])), properties=properties, node=NODE), folder)
        sizes.append((entry.files, entry.size))
        counting.requests = 0
        start = time.perf_counter()
        done = push(
            ours,
            [entry],
            remote,
            made,
            image_name="app",
            node=NODE,
            key=read_private_key(work / "k.pem"),
            reporter=QUIET,
        )
        rows.append(Row(f"push {number + 1}", time.perf_counter() - start, counting.requests, done.sent_bytes))
    counting.requests = counting.received = 0
    start = time.perf_counter()
    found = find(remote, made, node=NODE, keys=[read_key(work / "k.pub")])
    rows.append(Row("find both", time.perf_counter() - start, counting.requests, counting.received))
    told = {one.told.entry.key.model: one.told for one in found if one.told is not None}
    for number in range(len(folders)):
        counting.requests = counting.received = 0
        start = time.perf_counter()
        pull(theirs, remote, told[str(Digest.of(bytes([number])))], reporter=QUIET)
        rows.append(Row(f"pull {number + 1}", time.perf_counter() - start, counting.requests, counting.received))
    remote.close()
    return rows, sizes


def main() -> None:
    """Measure and print, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs=2, type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-engines."))
    try:
        with services.registry(work / "registry") as host:
            rows, sizes = measure(options.folders, work, host)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    lines = [
        f"{conditions()}, load {os.getloadavg()[0]:.1f}.",
        f"1: {sizes[0][0]} files, {sizes[0][1] / 1e6:.1f} MB; 2: {sizes[1][0]} files, {sizes[1][1] / 1e6:.1f} MB.",
        "",
        "| | s | requests | MB on the wire |",
        "| --- | --- | --- | --- |",
        *(f"| {row.what} | {row.seconds:.2f} | {row.requests} | {row.size / 1e6:.2f} |" for row in rows),
    ]
    print("\n".join(lines))
    if options.write:
        write_section("engines", "\n".join(lines))


if __name__ == "__main__":
    main()
