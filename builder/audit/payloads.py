"""Files written as text in a Python source, or in a compiled one: base64, base85, base32 or hexadecimal, packed or not.

Only string constants of files that also name a decoder are tried, so that nothing else costs anything.
"""

from __future__ import annotations

import ast
import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from builder.audit.nested import archive_kind
from builder.audit.python_tree import PythonTree

__all__ = ["DECODERS", "ELF_AS_TEXT", "Payload", "compiled_payloads", "python_payloads"]

DECODERS = (
    "b64decode",
    "b85decode",
    "a85decode",
    "b32decode",
    "b16decode",
    "decodebytes",
    "unhexlify",
    "fromhex",
    "decompress",
)
"""Functions that make bytes of a text."""
ELF_AS_TEXT = "x7fELF"
"""The first bytes of an ELF file as a bytes literal spells them."""
_LEAST = 48
"""Shorter texts hold no program worth a look."""
_LINE = re.compile(rb"[A-Za-z0-9+/=_-]{64}")
_SIGNS: dict[str, re.Pattern[bytes]] = {
    "fromhex": re.compile(rb"[0-9A-Fa-f]{64}"),
    "unhexlify": re.compile(rb"[0-9A-Fa-f]{64}"),
    "b85decode": re.compile(rb"[^\s\"']{64}"),
    "a85decode": re.compile(rb"[^\s\"']{64}"),
    "decompress": re.compile(rb"(?:\\x[0-9A-Fa-f]{2}[^\"'\\]{0,4}){8}"),
}
"""What a line of a payload looks like for some decoders, `_LINE` for the others: encoders break lines at 64 or 76
characters, if at all."""
_BLANKS = re.compile(rb"\s+")
_COMPILED = re.compile(rb"(?=[sautAZz\xf3\xe1\xf5\xf4\xc1]([\0-\xff]{3}[\0-\x03]))", re.DOTALL)
"""A long constant as marshal writes it: type, with or without the mark of a reference, and length in four bytes."""
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


def python_payloads(source: bytes, tree: PythonTree, words: frozenset[str]) -> Iterator[Payload]:
    """What the long constants of a source decode to, each way that fits, and long byte strings as they are; `words` are
    those of `PythonScanner.words`."""
    if ELF_AS_TEXT not in words and not any(_has_line(source, word) for word in words.intersection(DECODERS)):
        return
    for node in tree.all(ast.Constant):
        if not isinstance(node.value, (str, bytes)) or len(node.value) < _LEAST:
            continue
        if isinstance(node.value, bytes):
            yield Payload(node.lineno, node.value)
        text = node.value if isinstance(node.value, bytes) else node.value.encode("ascii", "ignore")
        yield from (Payload(node.lineno, data) for data in _decoded(text))


def compiled_payloads(data: bytes) -> Iterator[Payload]:
    """The same of a compiled module, by its long constants; lines are not known and read 0.

    Nothing is unmarshalled: that may crash the interpreter.
    """
    if not any(word.encode() in data for word in DECODERS):
        return
    end = 0
    for match in _COMPILED.finditer(data):
        size = int.from_bytes(match[1], "little")
        start = match.start() + 5
        if match.start() < end or not _LEAST <= size <= len(data) - start:
            continue
        text = data[start : start + size]
        if text[:_LEAST].isascii():
            end = start + size
            yield from (Payload(0, found) for found in _decoded(text))
        elif archive_kind(text) is not None:
            end = start + size
            yield Payload(0, text)


def _decoded(text: bytes) -> Iterator[bytes]:
    """What a text decodes to, each way that fits."""
    text = _BLANKS.sub(b"", text)
    for way in _WAYS:
        try:
            data = way(text)
        except (ValueError, OverflowError):  # binascii.Error is one
            continue
        if data:
            yield data


def _has_line(source: bytes, decoder: str) -> bool:
    """Whether something in the source can be a payload for this decoder, and is no long name or path."""
    sign = _SIGNS.get(decoder)
    if sign is not None:
        return sign.search(source) is not None
    return any(_is_mixed(match[0]) for match in _LINE.finditer(source))


def _is_mixed(text: bytes) -> bool:
    return not text.islower() and not text.isalpha() and any(48 <= char <= 57 for char in text)
