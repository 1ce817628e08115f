"""A Debian archive made for tests: packages, a signed index, and an HTTP server that serves them."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import zstandard
from pysequoia import SignatureMode, Tsk, sign

from builder.base.debian import DebianRef, lock_debian
from builder.base.mirror import fetch_packages
from builder.base.values import LockedBase
from builder.events import SilentReporter
from builder.store import Store


@dataclass
class Deb:
    """One package to be built; `files` maps paths to content, `links` paths to targets."""

    name: str
    version: str = "1.0-1"
    fields: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    hard: Mapping[str, str] = field(default_factory=dict)
    control: Mapping[str, bytes] = field(default_factory=dict)

    def stanza(self) -> str:
        fields = {"Package": self.name, "Version": self.version, "Architecture": "amd64", **self.fields}
        return "".join(f"{key}: {value}\n" for key, value in fields.items())

    def build(self, *, compression: str = "xz") -> bytes:
        control = _tar({"control": self.stanza().encode(), **self.control}, {}, {})
        data = _tar(self.files, self.links, self.hard)
        parts = [("debian-binary", b"2.0\n"), _packed("control", control, "xz"), _packed("data", data, compression)]
        return b"!<arch>\n" + b"".join(ar_member(name, body) for name, body in parts)


def _packed(name: str, data: bytes, compression: str) -> tuple[str, bytes]:
    packers: dict[str, Callable[[bytes], bytes]] = {"xz": lzma.compress, "gz": gzip.compress}
    packers["zst"] = zstandard.ZstdCompressor().compress
    return (f"{name}.tar.{compression}", packers[compression](data)) if compression else (f"{name}.tar", data)


def ar_member(name: str, body: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode()
    return header + body + b"\n" * (len(body) % 2)


def _tar(files: Mapping[str, bytes], links: Mapping[str, str], hard: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size, member.mode = len(data), 0o755 if "/bin/" in f"/{name}" else 0o644
            archive.addfile(member, io.BytesIO(data))
        for kind, table in ((tarfile.SYMTYPE, links), (tarfile.LNKTYPE, hard)):
            for name, target in table.items():
                member = tarfile.TarInfo(f"./{name}")
                member.type, member.linkname = kind, target
                archive.addfile(member)
    return out.getvalue()


class Archive:
    """A folder laid out as a mirror, signed with a key of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.key = Tsk.generate("Test Archive <archive@example.org>")

    @property
    def keyring(self) -> Path:
        path = self.root / "keyring.pgp"
        path.write_bytes(bytes(self.key.extract_certificate()))
        return path

    def publish(
        self,
        packages: Sequence[Deb],
        *,
        folder: str = "debian",
        suite: str = "bookworm",
        codename: str | None = None,
        extra: str = "",
        signer: Tsk | None = None,
        spoil_index: bool = False,
    ) -> None:
        base = self.root / folder
        stanzas = []
        for package in packages:
            data = package.build()
            path = base / "pool" / f"{package.name}_{package.version}_amd64.deb"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            digest = hashlib.sha256(data).hexdigest()
            stanzas.append(f"{package.stanza()}Filename: pool/{path.name}\nSize: {len(data)}\nSHA256: {digest}\n")
        index = lzma.compress("\n".join(stanzas).encode())
        digest = hashlib.sha256(index).hexdigest()
        by_hash = base / f"dists/{suite}/main/binary-amd64/by-hash/SHA256/{digest}"
        by_hash.parent.mkdir(parents=True, exist_ok=True)
        by_hash.write_bytes(index[:-1] + b"x" if spoil_index else index)
        text = f"Origin: Test\nCodename: {codename or suite}\n{extra}SHA256:\n"
        text += f" {digest} {len(index)} main/binary-amd64/Packages.xz\n"
        signed = sign((signer or self.key).signer(), text.encode(), mode=SignatureMode.CLEAR)
        (base / f"dists/{suite}/InRelease").write_bytes(signed)

    def publish_all(self, packages: Sequence[Deb]) -> None:
        self.publish(packages)
        self.publish([], suite="bookworm-updates")
        self.publish([], folder="debian-security", suite="bookworm-security")

    @contextmanager
    def serve(self) -> Iterator[str]:
        root = str(self.root)

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *args: object, **kwargs: object) -> None:
                super().__init__(*args, directory=root, **kwargs)  # type: ignore[arg-type]

            def log_request(self, *_args: object) -> None:
                """Keep test output clean."""

            def log_error(self, *_args: object) -> None:
                """Keep test output clean."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()


def locked_base(root: Path, store: Store) -> LockedBase:
    """A built-in base in miniature, its packages in the store."""
    archive = Archive(root / "mirror")
    archive.root.mkdir(parents=True)
    archive.publish_all(minimal_base())
    with archive.serve() as url:
        base = lock_debian(
            DebianRef("bookworm"),
            python="3.11",
            arch="x86_64",
            store=store,
            reporter=SilentReporter(),
            offline=False,
            environ={"BUILDER_DEBIAN_MIRROR": url, "BUILDER_DEBIAN_KEYRING": str(archive.keyring)},
        )
        fetch_packages(base.packages, store, SilentReporter(), offline=False)
    return base


def other_key() -> Tsk:
    return Tsk.generate("Somebody Else <else@example.org>")


LIBC = b"\x7fELF...GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\n..."


def minimal_base() -> list[Deb]:
    """What the built-in base needs, in miniature."""
    passwd = {"usr/share/base-passwd/passwd.master": b"root:*:0:0:root:/root:/bin/bash\n"}
    passwd["usr/share/base-passwd/group.master"] = b"root:*:0:\n"
    authorities = {f"usr/share/ca-certificates/mozilla/{name}.crt": f"CERT {name}".encode() for name in "BA"}
    doc = "usr/share/doc/python3.11-minimal"
    python = {"usr/bin/python3.11": b"\x7fELF python", "usr/share/man/man1/python.1": b"manual"}
    python |= {f"{doc}/copyright": b"PSF", f"{doc}/changelog.gz": b"x"}
    loader = {"lib64/ld-linux-x86-64.so.2": "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"}
    return [
        Deb(
            "base-files",
            files={"usr/lib/os-release": b"ID=debian\n", "etc/issue": b"Debian\n"},
            links={"etc/os-release": "../usr/lib/os-release", "bin": "usr/bin", "lib64": "usr/lib64"},
            control={"conffiles": b"/etc/issue\n"},
        ),
        Deb("base-passwd", files=passwd, fields={"Depends": "libc6 (>= 2.34)"}),
        Deb("ca-certificates", files=authorities, fields={"Depends": "openssl, debconf (>= 0.5) | debconf-2.0"}),
        Deb("openssl", files={"usr/bin/openssl": b"\x7fELF"}),
        Deb(
            "dash",
            files={"bin/dash": b"\x7fELF dash"},
            links={"bin/sh": "dash"},
            fields={"Depends": "debianutils, dpkg"},
        ),
        Deb("libc-bin", files={"usr/share/libc-bin/nsswitch.conf": b"hosts: files dns\n", "sbin/ldconfig": b"\x7fELF"}),
        Deb(
            "libc6",
            version="2.36-9+deb12u14",
            fields={"Multi-Arch": "same", "Depends": "libgcc-s1"},
            files={"lib/x86_64-linux-gnu/libc.so.6": LIBC},
            links=loader,
        ),
        Deb("libgcc-s1", fields={"Depends": "libc6"}),
        Deb("python3.11", fields={"Depends": "python3.11-minimal (= 3.11.2), media-types | mime-support"}),
        Deb("python3.11-minimal", files=python, hard={"usr/bin/python3.11-again": "./usr/bin/python3.11"}),
        Deb("tzdata", files={"usr/share/zoneinfo/Etc/UTC": b"TZif"}),
        *(Deb(name) for name in ("libgomp1", "libstdc++6", "netbase", "media-types", "zlib1g")),
        Deb("unrelated", fields={"Depends": "nothing-has-this"}),
    ]
