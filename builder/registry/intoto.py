"""In-toto statements in general: canonical bytes, one subject, a predicate type.

Source: in-toto attestation framework, "Statement layer" v1. Canonical JSON: the same result has the same digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from builder.errors import BadInput
from builder.names import Digest
from builder.registry.manifests import canonical_json

__all__ = [
    "STATEMENT",
    "member",
    "one_subject",
    "optional",
    "parse_statement",
    "read_statement",
    "statement",
    "subjects",
]

STATEMENT = "https://in-toto.io/Statement/v1"

T = TypeVar("T")


def parse_statement(content: bytes) -> dict[str, Any]:
    """The statement's JSON object; `BadInput` when it is no in-toto statement of version 1."""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise BadInput("not an in-toto statement", why=f"not JSON: {error}") from error
    if not isinstance(value, dict) or value.get("_type") != STATEMENT or not isinstance(value.get("predicate"), dict):
        raise BadInput("not an in-toto statement", why=f"expected an object with _type {STATEMENT} and a predicate")
    return value


def subjects(value: Mapping[str, Any]) -> tuple[Digest, ...]:
    """The sha256 digests a statement is about."""
    found = []
    for subject in value.get("subject") or ():
        try:
            found.append(Digest.parse(f"sha256:{subject['digest']['sha256']}"))
        except (KeyError, TypeError, BadInput):
            continue
    return tuple(found)


def statement(image: Digest, name: str, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """The bytes of a statement about one image, which `name` names for people."""
    return canonical_json(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": image.hex}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def read_statement(content: bytes, predicate_type: str, parse: Callable[[dict[str, Any]], T]) -> T:
    """What `parse` makes of a statement of this predicate type; `BadInput` for anything it cannot read."""
    found = parse_statement(content)
    if found.get("predicateType") != predicate_type:
        raise BadInput(f"not a statement of type {predicate_type}", why=f"it is a {found.get('predicateType')}")
    try:
        return parse(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"a statement of type {predicate_type} cannot be read", why=f"{type(error).__name__}: {error}"
        ) from error


def one_subject(value: Mapping[str, Any]) -> Digest:
    """The one digest a statement is about; `BadInput` when it names none or several."""
    found = subjects(value)
    if len(found) != 1:
        raise BadInput("a statement about one image was expected", why=f"it names {len(found)}")
    return found[0]


def member(value: Any, allowed: tuple[Any, ...]) -> Any:
    """`value`, when it is one of the allowed words; ValueError otherwise (for use inside `parse`)."""
    if value not in allowed:
        raise ValueError(f"{value!r} is not one of {', '.join(map(str, allowed))}")
    return value


def optional(value: Any) -> str | None:
    """Text, or None for null."""
    return None if value is None else str(value)
