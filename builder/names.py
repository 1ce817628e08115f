"""Types for every string with a grammar: digests, architectures, platforms, image references, backends.

Each parses at the border with `parse`, compares by value, and prints itself back with `str()`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from builder import resources
from builder.errors import BadInput, did_you_mean

__all__ = [
    "ARCHES",
    "GFX_OVERRIDE",
    "Arch",
    "Digest",
    "LayoutRef",
    "Platform",
    "Reference",
    "RegistryRef",
    "overridden_target",
    "parse_arch",
    "parse_backend",
    "parse_ref",
    "parse_tag",
]

Arch = Literal["x86_64", "aarch64"]
"""Machine architecture as wheels and `uname -m` spell it; `Platform` has the OCI spelling."""

ARCHES: tuple[Arch, ...] = get_args(Arch)

GFX_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
"""Variable that makes the ROCm runtime take every AMD device for another target: of a node class, never of an image."""


def overridden_target(text: str) -> str:
    """The target that `GFX_OVERRIDE` makes of a device: `11.0.0` → gfx1100. `BadInput` for another form."""
    match = re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})", text.strip())
    if match is None:
        raise BadInput(f"{GFX_OVERRIDE}={text}: not of the form 11.0.0")
    return f"gfx{int(match[1])}{int(match[2])}{int(match[3]):x}"


_OCI_ARCH: dict[Arch, str] = {"x86_64": "amd64", "aarch64": "arm64"}


def parse_arch(text: str) -> Arch:
    """The architecture of that name; `BadInput` with the closest names for another."""
    for arch in ARCHES:
        if arch == text:
            return arch
    raise BadInput(f"unknown architecture {text!r}", fix=did_you_mean(text, ARCHES))


def parse_backend(name: str) -> str:
    """`name` itself when matrices/ has such a backend; `BadInput` with the closest names otherwise."""
    known = resources.backends()
    if name not in known and name in resources.platforms():
        raise BadInput(
            f"no image is built for {name}",
            why=f"matrices/{name}/platform.toml: the facts known of it are shown and explained, and carry no image",
            fix=f"see builder matrix explain --backend {name}",
        )
    if name not in known:
        raise BadInput(f"unknown backend {name!r}", fix=did_you_mean(name, known))
    return name


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A content digest in OCI form, `sha256:<64 lower-case hex digits>` (image-spec, descriptor.md, "Digests")."""

    hex: str

    algorithm = "sha256"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `sha256:<hex>`; other algorithms are refused because nothing here could verify them."""
        if re.fullmatch(r"sha256:[0-9a-f]{64}", text) is None:
            raise BadInput(f"not a digest: {text!r}", why="expected sha256: and 64 lower-case hex digits")
        return cls(text[7:])

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Digest of these bytes."""
        return cls(hashlib.sha256(data).hexdigest())

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Digest of a file's bytes, read in one pass."""
        with path.open("rb") as file:
            return cls(hashlib.file_digest(file, "sha256").hexdigest())

    def __str__(self) -> str:
        return f"sha256:{self.hex}"


@dataclass(frozen=True, slots=True)
class Platform:
    """An OCI platform: only Linux, the two architectures that accelerators are sold with."""

    arch: Arch

    def __str__(self) -> str:
        return f"linux/{self.oci_arch}"

    @property
    def oci_arch(self) -> str:
        """`amd64` or `arm64` (image-spec, config.md, `architecture`: Go's GOARCH)."""
        return _OCI_ARCH[self.arch]


_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_REF = re.compile(
    rf"(?P<host>{_HOST})/(?P<repository>{_PATH})(?::(?P<tag>{_TAG}))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?"
)


@dataclass(frozen=True, slots=True)
class RegistryRef:
    """`host[:port]/repository[:tag][@sha256:…]`. The host is always written: there is no default registry.

    Source: distribution-spec, "Pulling manifests" (name and tag grammar).
    """

    host: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None

    def __str__(self) -> str:
        text = f"{self.host}/{self.repository}"
        if self.tag is not None:
            text += f":{self.tag}"
        if self.digest is not None:
            text += f"@{self.digest}"
        return text

    def with_tag(self, tag: str) -> RegistryRef:
        """The same repository under this tag, without a digest."""
        return RegistryRef(self.host, self.repository, parse_tag(tag))

    def with_digest(self, digest: Digest) -> RegistryRef:
        """The same repository pinned to this digest, without a tag."""
        return RegistryRef(self.host, self.repository, None, digest)


@dataclass(frozen=True, slots=True)
class LayoutRef:
    """`oci:DIR[:tag][@sha256:…]`: an OCI image layout on disk (image-spec, image-layout.md)."""

    path: Path
    tag: str | None = None
    digest: Digest | None = None

    def __str__(self) -> str:
        text = f"oci:{self.path}"
        if self.tag is not None:
            text += f":{self.tag}"
        if self.digest is not None:
            text += f"@{self.digest}"
        return text

    def with_tag(self, tag: str) -> LayoutRef:
        """The same layout under this tag, without a digest."""
        return LayoutRef(self.path, parse_tag(tag))

    def with_digest(self, digest: Digest) -> LayoutRef:
        """The same layout pinned to this digest, without a tag."""
        return LayoutRef(self.path, None, digest)


Reference = RegistryRef | LayoutRef


def parse_tag(tag: str) -> str:
    """`tag` itself when a registry accepts it (at most 128 of `[A-Za-z0-9._-]`, not starting with `.` or `-`)."""
    if re.fullmatch(_TAG, tag) is None:
        raise BadInput(
            f"not a tag: {tag!r}",
            why="a tag is 1 to 128 characters of A-Z a-z 0-9 . _ - and does not start with . or -",
            fix="'+' of a local version is written '_' by the default tag grammar",
        )
    return tag


def parse_ref(text: str) -> Reference:
    """Parse `oci:DIR[:tag][@digest]` or `host/name[:tag][@digest]`; `BadInput` says which part is wrong."""
    if text.startswith("oci:"):
        rest = text[4:]
        digest = None
        if "@sha256:" in rest:
            rest, _, found = rest.rpartition("@")
            digest = Digest.parse(found)
        head, colon, tag = rest.rpartition(":")
        if colon and "/" not in tag:
            return LayoutRef(Path(head), parse_tag(tag), digest)
        if not rest:
            raise BadInput(
                f"not an image reference: {text!r}", why="oci: is followed by a folder, e.g. oci:dist/image:1.0"
            )
        return LayoutRef(Path(rest), None, digest)
    match = _REF.fullmatch(text)
    if match is None:
        raise BadInput(
            f"not an image reference: {text!r}",
            why="expected host/name[:tag][@sha256:…] (lower-case name, the host always written) or oci:DIR[:tag]",
            fix="for example registry.example.org/team/app:1.0 or oci:dist/image:1.0",
        )
    host = match["host"]
    if not ("." in host or ":" in host or host == "localhost"):
        raise BadInput(
            f"image reference without a registry: {text!r}",
            why=f"{host!r} is not a host name, and there is no default registry",
            fix=f"write the host, for example docker.io/{text} or localhost:5000/{text}",
        )
    digest = Digest.parse(match["digest"]) if match["digest"] else None
    return RegistryRef(host, match["repository"], match["tag"], digest)
