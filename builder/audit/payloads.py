"""Files written as text in a Python source: base64, base85, base32 or hexadecimal, packed or not.

Only string constants of files that also name a decoder are tried, so that nothing else costs anything.
"""

from __future__ import annotations

import ast
import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from builder.audit.python_tree import PythonTree

__all__ = ["Payload", "python_payloads"]

_DECODERS = (
    b"b64decode",
    b"b85decode",
    b"a85decode",
    b"b32decode",
    b"b16decode",
    b"decodebytes",
    b"a2b_",
    b"unhexlify",
    b"fromhex",
    b"decompress",
    b"x7fELF",
)
_LEAST = 48
"""Shorter texts hold no program worth a look."""
_LONG = re.compile(rb"[^\s\"']{%d}" % _LEAST)
_BLANKS = re.compile(rb"\s+")
_HEX = re.compile(rb"[0-9a-fA-F]+")
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]+={0,2}")
_BASE32 = re.compile(rb"[A-Z2-7]+=*")


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes that a source spells out."""

    line: int
    data: bytes


def _hex(text: bytes) -> bytes | None:
    return binascii.unhexlify(text) if _HEX.fullmatch(text) and len(text) % 2 == 0 else None


def _base64(text: bytes) -> bytes | None:
    if not _BASE64.fullmatch(text):
        return None
    plain = text.rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
    return base64.b64decode(plain[: len(plain) - (len(plain) % 4 == 1)] + b"=" * (-len(plain) % 4))


def _base32(text: bytes) -> bytes | None:
    return base64.b32decode(text) if _BASE32.fullmatch(text) and len(text) % 8 == 0 else None


_WAYS: tuple[Callable[[bytes], bytes | None], ...] = (_hex, _base32, _base64, base64.b85decode, base64.a85decode)


def python_payloads(source: bytes, tree: PythonTree) -> Iterator[Payload]:
    """What the long constants of a source decode to, each way that fits, and long byte strings as they are."""
    if not any(word in source for word in _DECODERS) or not _LONG.search(source):
        return
    for node in tree.all(ast.Constant):
        if not isinstance(node.value, (str, bytes)) or len(node.value) < _LEAST:
            continue
        if isinstance(node.value, bytes):
            yield Payload(node.lineno, node.value)
        text = node.value if isinstance(node.value, bytes) else node.value.encode("ascii", "ignore")
        text = _BLANKS.sub(b"", text)
        for way in _WAYS:
            try:
                data = way(text)
            except (ValueError, OverflowError):  # binascii.Error is one
                continue
            if data:
                yield Payload(node.lineno, data)
