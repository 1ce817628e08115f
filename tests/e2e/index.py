"""A small package index on loopback that serves real wheels, and can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def pure_wheel(name: str, version: str, *, requires: tuple[str, ...] = (), padding: int = 0) -> bytes:
    """A pure Python wheel with one module, its RECORD in order; `padding` bytes of stored data make it bigger."""
    folder = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    members = {
        f"{name}/__init__.py": f'"""Made for a test."""\n\n__version__ = "{version}"\n'.encode(),
        f"{folder}/METADATA": (metadata + "".join(f"Requires-Dist: {line}\n" for line in requires)).encode(),
        f"{folder}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if padding:
        members[f"{name}/data.bin"] = hashlib.shake_256(name.encode()).digest(padding)
    lines = []
    for member, data in members.items():
        encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{member},sha256={encoded},{len(data)}\n")
    members[f"{folder}/RECORD"] = "".join([*lines, f"{folder}/RECORD,,\n"]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


class Index:
    """Wheels by file name. `url` is a simple index (PEP 503) whose links carry the true sha256."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.wheels: dict[str, bytes] = {}
        self.corrupt: set[str] = set()
        """File names whose bytes arrive changed, at the right length."""
        self.stalled: set[str] = set()
        """File names of which half arrives, then nothing until `release`."""
        self.half_sent = threading.Event()
        """Set when half of a stalled file is on its way."""
        self.release = threading.Event()
        self.requested: list[str] = []

    def add(self, name: str, version: str, *, requires: tuple[str, ...] = (), padding: int = 0) -> str:
        """Serve a pure wheel; returns its file name."""
        file = f"{name}-{version}-py3-none-any.whl"
        self.wheels[file] = pure_wheel(name, version, requires=requires, padding=padding)
        return file

    def metadata(self, file: str) -> bytes:
        """METADATA of a wheel, which is served apart as well (PEP 658), so that locking needs no wheel."""
        with zipfile.ZipFile(io.BytesIO(self.wheels[file])) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            return archive.read(name)

    def environment(self) -> dict[str, str]:
        """Variables that make this the only index pip and uv know."""
        return {
            "UV_DEFAULT_INDEX": self.url,
            "PIP_INDEX_URL": self.url,
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "UV_FIND_LINKS": "",
            "PIP_CONFIG_FILE": "/dev/null",
            "UV_NO_CONFIG": "1",
        }


@contextmanager
def serve() -> Iterator[Index]:
    """The index, while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            index.requested.append(self.path)
            kind, _, name = self.path.strip("/").partition("/")
            if kind == "simple":
                self._page(name)
            elif kind == "files" and name.removesuffix(".metadata") in index.wheels and name.endswith(".metadata"):
                self._send(200, index.metadata(name.removesuffix(".metadata")))
            elif kind == "files" and name in index.wheels:
                self._file(name)
            else:
                self._send(404, b"not here")

        do_HEAD = do_GET  # noqa: N815  http.server's own names

        def _page(self, project: str) -> None:
            files = [file for file in sorted(index.wheels) if file.partition("-")[0].replace("_", "-") == project]
            if project and not files:
                self._send(404, b"no such project")
                return
            links = [
                f'<a href="/files/{file}#sha256={hashlib.sha256(index.wheels[file]).hexdigest()}" '
                f'data-core-metadata="sha256={hashlib.sha256(index.metadata(file)).hexdigest()}">{file}</a><br>'
                for file in files
            ]
            self._send(200, f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode(), "text/html")

        def _file(self, file: str) -> None:
            data = index.wheels[file]
            if file in index.corrupt:
                middle = len(data) // 2
                data = data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]
            if file not in index.stalled:
                self._send(200, data)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            index.half_sent.set()
            index.release.wait(60)
            self.close_connection = True

        def _send(self, status: int, body: bytes, kind: str = "application/octet-stream") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index = Index(f"http://127.0.0.1:{server.server_address[1]}/simple")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield index
    finally:
        index.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
