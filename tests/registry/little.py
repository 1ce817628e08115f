"""A small registry inside the test process: it works, and it can be told to misbehave.

Holds everything in memory. `fault` is called with each request before it is answered; it may return a canned answer,
raise `Cut` to drop the connection, or return None to let the request through.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from builder.names import Digest
from builder.registry.values import MediaType


class Cut(Exception):
    """Drop the connection without an answer, after taking `after` bytes of the body."""

    def __init__(self, after: int = 0) -> None:
        super().__init__(f"cut after {after} bytes")
        self.after = after


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    promised: int | None = None
    """Content-Length, when it is to be another than the body's; the connection is closed after the body."""


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    """With the query."""
    headers: dict[str, str]
    """Keys in lower case."""
    size: int

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def error(code: int, name: str, message: str = "", headers: dict[str, str] | None = None) -> Answer:
    body = json.dumps({"errors": [{"code": name, "message": message}]}).encode()
    return Answer(code, {"Content-Type": "application/json", **(headers or {})}, body)


@dataclass
class Little:
    """State of the registry; public attributes may be changed by a test at any time."""

    host: str = ""
    fault: Callable[[Asked], Answer | None] = lambda asked: None
    referrers_endpoint: bool = True
    user: str | None = None
    """`user:password` that the token server (bearer) or the registry itself (basic) wants."""
    scheme: str = "none"
    """`none`, `basic` or `bearer`."""
    log: list[Asked] = field(default_factory=list)
    blobs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    manifests: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    tokens: dict[str, set[str]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def lines(self) -> list[str]:
        """Requests so far, upload sessions and digests shortened."""
        short = [re.sub(r"uploads/[0-9a-f]{8,}", "uploads/ID", str(asked)) for asked in self.log]
        return [re.sub(r"sha256:([0-9a-f]{4})[0-9a-f]{60}", r"sha256:\1", line) for line in short]

    # --- answering; the body of uploads is appended as it arrives, so that a cut leaves what came

    def answer(self, asked: Asked, body: bytes) -> Answer:
        parts = urlsplit(asked.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path == "/token":
            return self.token(asked)
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs|tags|referrers)/(.*)", parts.path)
        if match is None:
            return error(404, "NOT_FOUND")
        name, kind, rest = match.groups()
        denied = self.check(asked, name)
        if denied is not None:
            return denied
        with self.lock:
            if kind == "manifests":
                return self.manifest(asked, name, rest, body)
            if kind == "tags":
                tags = sorted(ref for repo, ref in self.manifests if repo == name and ":" not in ref)
                return Answer(200, {"Content-Type": "application/json"}, json.dumps({"tags": tags}).encode())
            if kind == "referrers":
                return self.referrers(name, rest)
            if rest.startswith("uploads/"):
                return self.upload(asked, name, rest.removeprefix("uploads/"), query)
            found = self.blobs.get((name, rest))
            if found is None:
                return error(404, "BLOB_UNKNOWN")
            start = re.fullmatch(r"bytes=([0-9]+)-", asked.headers.get("range", ""))
            if start:
                return Answer(206, {}, found[int(start[1]) :])
            return Answer(200, {"Docker-Content-Digest": rest}, found)

    def manifest(self, asked: Asked, name: str, reference: str, body: bytes) -> Answer:
        if asked.method == "PUT":
            digest = str(Digest.of(body))
            stored = (asked.headers["content-type"], body)
            self.manifests[name, digest] = stored
            self.manifests[name, reference] = stored
            headers = {"Docker-Content-Digest": digest}
            subject = json.loads(body).get("subject")
            if subject and self.referrers_endpoint:
                headers["OCI-Subject"] = subject["digest"]
            return Answer(201, headers)
        found = self.manifests.get((name, reference))
        if found is None:
            return error(404, "MANIFEST_UNKNOWN")
        if asked.method == "DELETE":
            for key in [key for key, value in self.manifests.items() if key[0] == name and value[1] == found[1]]:
                del self.manifests[key]
            return Answer(202)
        return Answer(200, {"Content-Type": found[0], "Docker-Content-Digest": str(Digest.of(found[1]))}, found[1])

    def referrers(self, name: str, subject: str) -> Answer:
        if not self.referrers_endpoint:
            return Answer(404, {}, b"404 page not found")
        found = []
        for (repo, reference), (media_type, raw) in self.manifests.items():
            value = json.loads(raw)
            if repo == name and ":" in reference and (value.get("subject") or {}).get("digest") == subject:
                entry = {"mediaType": media_type, "digest": reference, "size": len(raw)}
                entry |= {key: value[key] for key in ("artifactType", "annotations") if key in value}
                found.append(entry)
        index = {"schemaVersion": 2, "mediaType": MediaType.INDEX, "manifests": found}
        return Answer(200, {"Content-Type": MediaType.INDEX}, json.dumps(index).encode())

    def upload(self, asked: Asked, name: str, session: str, query: dict[str, str]) -> Answer:
        if asked.method == "POST":
            if "mount" in query and (query["from"], query["mount"]) in self.blobs:
                self.blobs[name, query["mount"]] = self.blobs[query["from"], query["mount"]]
                return Answer(201, {"Docker-Content-Digest": query["mount"]})
            session = secrets.token_hex(8)
            self.uploads[session] = bytearray()
            return Answer(202, {"Location": f"/v2/{name}/blobs/uploads/{session}"})
        data = self.uploads.get(session)
        if data is None:
            return error(404, "BLOB_UPLOAD_UNKNOWN")
        headers = {"Location": f"/v2/{name}/blobs/uploads/{session}", "Range": f"0-{max(0, len(data) - 1)}"}
        if asked.method == "GET":
            return Answer(204, headers)
        if asked.method == "PATCH":
            return Answer(202, headers)
        del self.uploads[session]
        if str(Digest.of(bytes(data))) != query["digest"]:
            return error(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
        self.blobs[name, query["digest"]] = bytes(data)
        return Answer(201, {"Docker-Content-Digest": query["digest"]})

    # --- who may

    def check(self, asked: Asked, name: str) -> Answer | None:
        given = asked.headers.get("authorization", "")
        if self.scheme == "basic" and given != f"Basic {base64.b64encode((self.user or '').encode()).decode()}":
            return error(401, "UNAUTHORIZED", headers={"WWW-Authenticate": 'Basic realm="little"'})
        if self.scheme == "bearer":
            needed = f"repository:{name}:{'pull' if asked.method in ('GET', 'HEAD') else 'push'}"
            if needed not in self.tokens.get(given.removeprefix("Bearer "), set()):
                challenge = f'Bearer realm="http://{self.host}/token",service="little",scope="{needed}"'
                return error(401, "UNAUTHORIZED", headers={"WWW-Authenticate": challenge})
        return None

    def token(self, asked: Asked) -> Answer:
        wanted = f"Basic {base64.b64encode((self.user or '').encode()).decode()}"
        if self.user is not None and asked.headers.get("authorization") != wanted:
            return error(401, "UNAUTHORIZED")
        made = secrets.token_hex(8)
        granted = set()
        for scope in parse_qs(urlsplit(asked.path).query).get("scope", []):
            resource, _, actions = scope.rpartition(":")
            granted |= {f"{resource}:{action}" for action in actions.split(",")}
        self.tokens[made] = granted
        return Answer(200, {"Content-Type": "application/json"}, json.dumps({"token": made}).encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    little: Little

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError, ssl.SSLError):
            self.close_connection = True

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        headers = {key.lower(): value for key, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, size)
        with self.little.lock:
            self.little.log.append(asked)
        session = re.search(r"/blobs/uploads/([0-9a-f]{8,})", self.path)
        try:
            canned = self.little.fault(asked)
        except Cut as cut:
            self._take(session, cut.after)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if canned is not None:
            self.rfile.read(size)
            self._send(canned)
            return
        allowed = session and self.little.check(asked, self.path.split("/v2/")[1].split("/blobs/")[0]) is None
        body = self._take(session if allowed else None, size)
        self._send(self.little.answer(asked, body))

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - names that http.server wants

    def _take(self, session: re.Match[str] | None, size: int) -> bytes:
        body = b""
        upload = self.little.uploads.get(session[1]) if session else None
        while size:
            piece = self.rfile.read(min(size, 1 << 16))
            if not piece:
                raise ConnectionError("the client stopped sending")
            size -= len(piece)
            if upload is not None:
                upload += piece
            else:
                body += piece
        return body

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.code)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        if answer.code != 204:
            self.send_header("Content-Length", str(answer.promised or len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        if answer.promised is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name http.server gives it
        """Keep quiet."""


@contextmanager
def serve(certificate: Path | None = None) -> Iterator[Little]:
    """A little registry on a free loopback port; over TLS with a PEM file of key and certificate."""
    little = Little()
    handler = type("Handler", (_Handler,), {"little": little})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    little.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield little
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def random_bytes(size: int, seed: str) -> bytes:
    """Bytes that do not compress, the same for the same seed."""
    return hashlib.shake_256(seed.encode()).digest(size)
