"""The grammar of version tags: from a project's pattern to a tag every registry takes."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping

from builder.errors import BadInput, Refused, did_you_mean
from builder.names import Digest, parse_tag
from builder.registry.values import Repository
from builder.release.evidence import listed_evidence
from builder.resources import node_class_names

__all__ = ["TAG_FIELDS", "legal_tag", "refuse_class_tag", "refuse_promoted_tag", "version_tag"]

TAG_FIELDS = ("name", "version", "backend", "toolkit", "arch", "python")


def refuse_class_tag(tag: str) -> None:
    """`Refused` for the name of a known node class: such a tag moves by promotion alone, on evidence."""
    if tag in node_class_names():
        raise _moves_by_promotion(tag)


def refuse_promoted_tag(tag: str, repository: Repository, digest: Digest) -> None:
    """`Refused` for a tag under which this image was promoted: it is a node class's, known to the tables or not."""
    if any(
        piece.kind == "promotion" and piece.summary.get("node-class") == tag
        for piece in listed_evidence(repository, digest)
    ):
        raise _moves_by_promotion(tag)


def _moves_by_promotion(tag: str) -> Refused:
    return Refused(
        f"nothing is published under the tag {tag!r}",
        why=f"{tag} is a node class, and its tag moves only by promotion",
        fix=f"publish under a version tag (DST:VERSION), then builder promote REF --node-class {tag}: "
        "the evidence goes along",
    )


def version_tag(
    grammar: str,
    *,
    name: str,
    version: str,
    backend: str,
    toolkit: str | None,
    arch: str,
    python: str,
) -> str:
    """The tag that a pattern such as `{version}-{backend}{toolkit}` makes; a backend without toolkit leaves it empty.

    `BadInput` for an unknown field, a malformed pattern, or a result that no registry takes.
    """
    values: Mapping[str, str] = {
        "name": name,
        "version": version,
        "backend": backend,
        "toolkit": toolkit or "",
        "arch": arch,
        "python": python,
    }
    try:
        parts = list(string.Formatter().parse(grammar))
    except ValueError as error:
        raise BadInput(
            f"not a tag grammar: {grammar!r}", why=str(error), fix="for example {version}-{backend}{toolkit}"
        ) from error
    made = []
    for literal, field, form, conversion in parts:
        made.append(literal)
        if field is None:
            continue
        if field not in values:
            raise BadInput(f"unknown field {{{field}}} in the tag grammar {grammar!r}", fix=did_you_mean(field, values))
        if form or conversion:
            raise BadInput(f"not a tag grammar: {grammar!r}", why="a field is a name alone", fix=f"write {{{field}}}")
        made.append(values[field])
    return legal_tag("".join(made))


def legal_tag(text: str) -> str:
    """`text` with what a tag cannot hold replaced: `+` (local versions) by `_`, anything else by `-`."""
    return parse_tag(re.sub(r"[^A-Za-z0-9._-]", "-", text.replace("+", "_")))
