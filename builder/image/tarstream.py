"""Headers of a tar archive, the same bytes on every machine.

Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Extended Header". Times and owners' names are fixed:
a layer says what its files are, not when or by whom they were written.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["BLOCK", "END", "MTIME", "TarKind", "header", "padding"]

BLOCK = 512
END = bytes(2 * BLOCK)
"""What closes an archive."""

MTIME = 315532800
"""1980-01-01 00:00:00 UTC, in seconds: the oldest time that zip tools in the image can still write."""

TarKind = Literal["file", "directory", "symlink"]

_TYPE: dict[TarKind, bytes] = {"file": b"0", "directory": b"5", "symlink": b"2"}
_MAX_OCTAL_SIZE = 8**11 - 1


def header(path: str, kind: TarKind, *, mode: int, uid: int = 0, gid: int = 0, size: int = 0, link: str = "") -> bytes:
    """One entry's header blocks; with a pax header before it when ustar cannot hold the path, link or size.

    `path` is relative, without a trailing slash; `size` in bytes.
    """
    name = path + "/" if kind == "directory" else path
    raw, target = _encoded(name), _encoded(link)
    pax: dict[str, bytes] = {}
    prefix, short = _split(raw) if raw.isascii() else (None, b"")
    if prefix is None:
        pax["path"] = raw
        prefix, short = b"", raw[:100]
    if len(target) > 100 or not target.isascii():
        pax["linkpath"] = target
        target = target[:100]
    if size > _MAX_OCTAL_SIZE:
        pax["size"] = str(size).encode()
    block = _ustar(short, prefix, _TYPE[kind], mode, uid, gid, 0 if "size" in pax else size, target)
    if not pax:
        return block
    records = b"".join(_record(key, value) for key, value in sorted(pax.items()))
    extended = _ustar(b"PaxHeaders/entry", b"", b"x", 0o644, 0, 0, len(records), b"")
    return extended + records + padding(len(records)) + block


def padding(size: int) -> bytes:
    """The zeros that fill the last block of `size` bytes of content."""
    return bytes(-size % BLOCK)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _split(name: bytes) -> tuple[bytes | None, bytes]:
    """(prefix, name) of at most 155 and 100 bytes, cut at a slash; prefix None when there is no such cut."""
    if len(name) <= 100:
        return b"", name
    cut = name.rfind(b"/", 0, 156)
    while cut > 0:
        if len(name) - cut - 1 <= 100 and cut + 1 < len(name):
            return name[:cut], name[cut + 1 :]
        if len(name) - cut - 1 > 100:
            return None, b""
        cut = name.rfind(b"/", 0, cut)
    return None, b""


def _ustar(name: bytes, prefix: bytes, kind: bytes, mode: int, uid: int, gid: int, size: int, link: bytes) -> bytes:
    fields = b"%s%07o\0%07o\0%07o\0%011o\0%011o\0" % (name.ljust(100, b"\0"), mode, uid, gid, size, MTIME)
    tail = kind + link.ljust(100, b"\0") + b"ustar\0" + b"00" + bytes(80) + prefix.ljust(155, b"\0") + bytes(12)
    checksum = sum(fields) + sum(tail) + 8 * 0x20
    return fields + b"%06o\0 " % checksum + tail


def _record(key: str, value: bytes) -> bytes:
    """`<length> <key>=<value>\\n`, where the length counts its own digits."""
    body = b" " + key.encode() + b"=" + value + b"\n"
    length = len(body)
    while length != len(body) + len(str(length)):
        length = len(body) + len(str(length))
    return str(length).encode() + body
