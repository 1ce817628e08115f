"""Small real wheels, and a package index that serves them on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

LONG_AGO = "2020-01-01T00:00:00Z"


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    files: dict[str, bytes] | None = None,
) -> Path:
    """A valid wheel: one empty module, METADATA, WHEEL and RECORD; the same arguments give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = name.replace("-", "_")
    path = folder / f"{stem}-{version}-{tag}.whl"
    info = f"{stem}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    extras = sorted(set(re.findall(r"extra\s*==\s*['\"]([^'\"]+)", " ".join(requires))))
    metadata += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    contents = {f"{stem}/__init__.py": b"", **(files or {})}
    contents[f"{info}/METADATA"] = metadata.encode()
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
    record = ""
    for member, data in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{member},sha256={digest},{len(data)}\n"
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in contents.items():
            entry = zipfile.ZipInfo(member, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return path


@dataclass
class Offer:
    """One file of an index."""

    path: Path
    uploaded: str | None = LONG_AGO
    hashed: bool = True
    metadata_hash: bool = False
    """Whether the page gives the digest of the METADATA file (PEP 714)."""
    yanked: bool = False

    @property
    def metadata(self) -> bytes:
        """The METADATA member."""
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))


@dataclass
class Index:
    """A simple index at `url` (PEP 503 or PEP 691), and the misbehaviour a test asks of it."""

    offers: dict[str, list[Offer]] = field(default_factory=dict)
    html: bool = False
    login: tuple[str, str] | None = None
    url: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """(path, Range header) of every request."""
    fail: list[int] = field(default_factory=list)
    """Statuses to answer the next file requests with."""
    cut: list[int] = field(default_factory=list)
    """Numbers of bytes after which the next file answers break off."""
    ranges: bool = True
    swapped: dict[str, bytes] = field(default_factory=dict)
    """File name to other bytes that are served in its place."""

    def add(
        self, path: Path, *, uploaded: str | None = LONG_AGO, hashed: bool = True, metadata_hash: bool = False
    ) -> Path:
        """Offer a wheel under its project's name."""
        name = re.sub(r"[-_.]+", "-", path.name.split("-")[0]).lower()
        self.offers.setdefault(name, []).append(Offer(path, uploaded, hashed, metadata_hash))
        return path

    def file_url(self, path: Path) -> str:
        """Where a file is served."""
        return f"{self.url.removesuffix('/simple')}/files/{path.name}"

    def fetched(self, path: Path) -> list[str | None]:
        """Range headers of the requests for a file's bytes."""
        return [header for asked, header in self.requests if unquote(asked) == f"/files/{path.name}"]


@contextmanager
def serving(index: Index) -> Iterator[Index]:
    """Serve the index on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            index.requests.append((self.path, self.headers.get("Range")))
            if index.login is not None:
                wanted = base64.b64encode(":".join(index.login).encode()).decode()
                if self.headers.get("Authorization") != f"Basic {wanted}":
                    return self._send(401, b"", {"WWW-Authenticate": "Basic"})
            if path == "/simple/":
                return self._root()
            if match := re.fullmatch(r"/simple/([^/]+)/", path):
                return self._page(match[1])
            if match := re.fullmatch(r"/files/(.+?)(\.metadata)?", path):
                return self._file(match[1], metadata=match[2] is not None)
            return self._send(404, b"")

        def _root(self) -> None:
            if index.html:
                lines = [f'<a href="/simple/{name}/">{name}</a>' for name in index.offers]
                return self._send(200, "\n".join(lines).encode(), {"Content-Type": "text/html"})
            page = {"meta": {"api-version": "1.0"}, "projects": [{"name": name} for name in index.offers]}
            return self._send(200, json.dumps(page).encode(), {"Content-Type": "application/vnd.pypi.simple.v1+json"})

        def _page(self, name: str) -> None:
            if name not in index.offers:
                return self._send(404, b"")
            if index.html:
                lines = ["<!DOCTYPE html><html><body>"]
                for offer in index.offers[name]:
                    digest = hashlib.sha256(offer.path.read_bytes()).hexdigest()
                    href = f"../../files/{offer.path.name}" + (f"#sha256={digest}" if offer.hashed else "")
                    extra = ' data-yanked="broken"' if offer.yanked else ""
                    if offer.metadata_hash:
                        extra += f' data-core-metadata="sha256={hashlib.sha256(offer.metadata).hexdigest()}"'
                    lines.append(f'<a href="{href}"{extra}>{offer.path.name}</a>')
                return self._send(200, "\n".join(lines).encode(), {"Content-Type": "text/html"})
            files = []
            for offer in index.offers[name]:
                entry: dict[str, object] = {"filename": offer.path.name, "url": f"../../files/{offer.path.name}"}
                digest = hashlib.sha256(offer.path.read_bytes()).hexdigest()
                entry["hashes"] = {"sha256": digest} if offer.hashed else {}
                entry["size"] = offer.path.stat().st_size
                if offer.yanked:
                    entry["yanked"] = "broken"
                if offer.uploaded:
                    entry["upload-time"] = offer.uploaded
                if offer.metadata_hash:
                    entry["core-metadata"] = {"sha256": hashlib.sha256(offer.metadata).hexdigest()}
                files.append(entry)
            page = {"meta": {"api-version": "1.1"}, "name": name, "versions": [], "files": files}
            return self._send(200, json.dumps(page).encode(), {"Content-Type": "application/vnd.pypi.simple.v1+json"})

        def _file(self, name: str, *, metadata: bool) -> None:
            offer = next((o for offers in index.offers.values() for o in offers if o.path.name == name), None)
            if offer is None:
                return self._send(404, b"")
            if metadata:
                return self._send(200, offer.metadata)
            if index.fail:
                return self._send(index.fail.pop(0), b"", {"Retry-After": "0"})
            data = index.swapped.get(name, offer.path.read_bytes())
            headers = {
                "ETag": f'"{hashlib.sha256(data).hexdigest()[:16]}"',
                "Last-Modified": formatdate(0, usegmt=True),
            }
            start, status = 0, 200
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
            if asked and index.ranges and self.headers.get("If-Range") in (None, headers["ETag"]):
                start = int(asked[1])
                if start >= len(data):
                    return self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                end = min(int(asked[2]) if asked[2] else len(data) - 1, len(data) - 1)
                headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
                data, status = data[start : end + 1], 206
            return self._send(status, data, headers, cut=index.cut.pop(0) if index.cut else None)

        def _send(
            self, status: int, body: bytes, headers: dict[str, str] | None = None, *, cut: int | None = None
        ) -> None:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body if cut is None else body[:cut])
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True

    class Server(ThreadingHTTPServer):
        def handle_error(self, *args: object) -> None:
            """Clients go away in mid-answer here on purpose."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
