"""The table of contents that lets a runtime start a container before its layers are here.

An eStargz layer is a plain gzip layer whose last entry lists every other one: where its gzip member lies in the blob,
and what its bytes hash to. A runtime that knows the format fetches single files by range; every other engine sees an
ordinary layer, with two small files more at the root: the table and a landmark.
Source: github.com/containerd/stargz-snapshotter, docs/estargz.md ("The structure", "TOC, TOCEntries and Footer",
"Prioritized Files and Landmark Files", "Content Verification in eStargz").
"""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

from builder.image.tarstream import MTIME, TarKind

__all__ = ["LANDMARK", "LANDMARK_CONTENT", "TOC_ANNOTATION", "TOC_NAME", "Contents", "footer"]

TOC_NAME = "stargz.index.json"
TOC_ANNOTATION = "containerd.io/snapshot/stargz/toc.digest"
"""On the layer's descriptor: the digest of the table, which makes every chunk verifiable from the manifest."""

LANDMARK = ".no.prefetch.landmark"
"""Says that no file goes before the others: which files a service reads first is not known when it is built."""
LANDMARK_CONTENT = b"\x0f"

_KINDS: dict[TarKind, str] = {"file": "reg", "directory": "dir", "symlink": "symlink"}
_WHEN = datetime.fromtimestamp(MTIME, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
_EMPTY = b"\x01\x00\x00\xff\xff" + bytes(8)
"""An empty final stored block, then CRC-32 and length of nothing."""


class Contents:
    """The table of one layer, filled entry by entry in the order of the tar."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def add(self, path: str, kind: TarKind, *, mode: int, uid: int, gid: int, link: str = "") -> None:
        """An entry; `content` follows for a file that is not empty."""
        entry: dict[str, Any] = {
            "name": path + "/" if kind == "directory" else path,
            "type": _KINDS[kind],
            "modtime": _WHEN,
            "mode": mode,
            "uid": uid,
            "gid": gid,
        }
        if link:
            entry["linkName"] = link
        self._entries.append(entry)

    def content(self, *, offset: int, size: int, sha256: str) -> None:
        """Where the bytes of the last entry begin in the blob, how many they are, and their digest in hex.

        A file is one chunk, since its stream is one gzip member.
        """
        self._entries[-1] |= {
            "size": size,
            "offset": offset,
            "digest": f"sha256:{sha256}",
            "chunkDigest": f"sha256:{sha256}",
        }

    def json(self) -> bytes:
        """The table as it is stored and digested."""
        table = {"version": 1, "entries": self._entries}
        return json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")


def footer(offset: int) -> bytes:
    """The 51 bytes that end the blob: an empty gzip member whose extra field says where the table's member begins."""
    field = b"%016xSTARGZ" % offset
    extra = b"SG" + struct.pack("<H", len(field)) + field
    return b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff" + struct.pack("<H", len(extra)) + extra + _EMPTY
