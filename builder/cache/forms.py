"""The one spelling of a factor's value, so that spelling, order and repetition never make two keys of one engine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from builder.errors import BadInput
from builder.names import Digest

__all__ = ["FORMS", "spell"]


def _text(value: str) -> str:
    return " ".join(value.split())


def _lower(value: str) -> str:
    return _text(value).casefold()


def _version(value: str) -> str:
    """A version as makers print it: without a leading v; local labels stay, they tell builds apart."""
    text = _text(value)
    return text[1:] if re.match(r"[vV]\d", text) else text


def _capability(value: str) -> str:
    """`9.0` of 9.0, 90, sm_90, sm_90a, compute_90: what the device is, not what the code was compiled for."""
    match = re.fullmatch(r"(?:sm_?|compute_?)?(\d+?)\.?(\d)[af]?", value.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError("expected a compute capability such as 9.0 or sm_90")
    return f"{int(match[1])}.{match[2]}"


def _capabilities(value: str) -> str:
    return " ".join(
        sorted({_capability(part) for part in _parts(value)}, key=lambda one: tuple(map(int, one.split("."))))
    )


def _gfx(value: str) -> str:
    """`gfx90a:sramecc+:xnack-`: the processor and its features, sorted (LLVM AMDGPU usage, "Target ID")."""
    processor, *features = value.strip().lower().split(":")
    if re.fullmatch(r"gfx[0-9a-f]+(-[0-9]+)*(-generic)?", processor) is None:
        raise ValueError("expected a target ID such as gfx942 or gfx90a:sramecc+:xnack-")
    return ":".join([processor, *sorted(features)])


def _parts(value: str) -> list[str]:
    return [part for part in re.split(r"[\s,;]+", value.strip()) if part]


def _words(value: str) -> str:
    """A set of words: sorted, each once."""
    return " ".join(sorted(set(_parts(value))))


def _flags(value: str) -> str:
    """Command line flags: sorted by name, of a flag given twice the last, as programs read them."""
    last: dict[str, str] = {}
    for part in shlex.split(value):
        last[part.partition("=")[0]] = part
    return " ".join(shlex.quote(last[name]) for name in sorted(last))


def _flags_of(spelled: str) -> list[str]:
    return [shlex.quote(part) for part in shlex.split(spelled)]


def _number(value: str) -> str:
    """A whole number, decimal or 0x hexadecimal, as decimal."""
    return str(int(value.strip().replace("_", ""), 0))


def _bits(value: str) -> str:
    """A mask as hexadecimal without leading zeros."""
    return hex(int(value.strip(), 0))


def _range(value: str) -> str:
    """`2-4` or `3`, which is `3-3`."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:-|\.\.)?\s*(\d+)?\s*", value)
    if match is None:
        raise ValueError("expected a range such as 2-4")
    low, high = int(match[1]), int(match[2] or match[1])
    if low > high:
        raise ValueError("the range ends before it begins")
    return f"{low}-{high}"


def _switch(value: str) -> str:
    word = value.strip().casefold()
    if word in ("1", "true", "yes", "on"):
        return "on"
    if word in ("0", "false", "no", "off"):
        return "off"
    raise ValueError("expected on or off")


def _digest(value: str) -> str:
    text = value.strip().lower()
    if not text.startswith("sha256:"):
        text = f"sha256:{text}"
    try:
        return str(Digest.parse(text))
    except BadInput as error:
        raise ValueError(error.why) from error


FORMS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "text": _text,
        "lower": _lower,
        "version": _version,
        "capability": _capability,
        "capabilities": _capabilities,
        "gfx": _gfx,
        "words": _words,
        "flags": _flags,
        "number": _number,
        "bits": _bits,
        "range": _range,
        "switch": _switch,
        "digest": _digest,
    }
)
"""Names of the column `form` of matrices/engines, each with what spells a value."""


def spell(form: str, name: str, value: str, ignore: Collection[str] = ()) -> str:
    """`value` in the canonical spelling of a form; `BadInput` naming the property when it cannot be one.

    Of flags, those of `ignore` are left out: they change where something is written, never what is compiled.
    """
    try:
        spelled = FORMS[form](value)
        return " ".join(one for one in _flags_of(spelled) if one.partition("=")[0] not in ignore) if ignore else spelled
    except ValueError as error:
        raise BadInput(
            f"{name}={value!r} cannot be read", why=str(error), fix=f"the property has the form {form}"
        ) from error
