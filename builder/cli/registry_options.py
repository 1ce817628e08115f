"""What the commands that speak to a registry share: their options, and how evidence and refusals are shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.console import Console, print_document, print_error
from builder.errors import BadInput, Refused, where_path
from builder.names import Digest, LayoutRef, Reference, parse_ref

if TYPE_CHECKING:
    from builder.registry.values import Repository
    from builder.release.values import Draft, Evidence, Promotion

__all__ = [
    "ClassTag",
    "attach_drafts",
    "class_name",
    "class_tag",
    "class_tag_document",
    "class_tag_options",
    "evidence_documents",
    "image_name",
    "key_password",
    "now",
    "open_reference",
    "password_option",
    "plain_http_option",
    "print_class_tag",
    "print_refusal",
    "repository_reference",
]


def plain_http_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--plain-http`; without it http is spoken with registries on loopback only."""
    return click.option(
        "--plain-http",
        is_flag=True,
        help="Speak http, without TLS, with the registry; on loopback that is the default.",
    )(function)


def class_tag_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what commands that move a node class's tag share: `--node-class`, `--expect` and `--plain-http`."""
    for add in (
        plain_http_option,
        click.option("--expect", metavar="DIGEST", help="Refuse unless the tag points at this digest now."),
        click.option("--node-class", required=True, metavar="N", help="Name of a node class, or a class file."),
    ):
        function = add(function)
    return function


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassTag:
    """The tag of a node class in a repository, which a command is about to move."""

    name: str
    """Of the class, and so of the tag."""
    ref: str
    repository: Repository
    expected: Digest | None
    """What it must point at now, when the user says."""
    image: str
    """What statements call the image."""


def class_tag(
    console: Console, reference: Reference, *, node_class: str, expect: str | None, plain_http: bool
) -> ClassTag:
    """From the options of `class_tag_options` to the tag; nothing is asked of the registry yet."""
    name = class_name(node_class)
    return ClassTag(
        name=name,
        ref=str(reference.with_tag(name)),
        repository=open_reference(console, reference, plain_http=plain_http),
        expected=None if expect is None else Digest.parse(expect),
        image=image_name(reference),
    )


def class_tag_document(tag: ClassTag, digest: Digest | None, evidence: Iterable[Evidence]) -> dict[str, Any]:
    """What every document about the tag of a node class says; `tags` is empty as long as nothing moved."""
    return {
        "ref": tag.ref,
        "digest": str(digest) if digest else None,
        "tags": [],
        "evidence": evidence_documents(evidence),
        "node_class": tag.name,
    }


def print_class_tag(
    console: Console, command: str, tag: ClassTag, done: Promotion, verdict: str, evidence: Iterable[Evidence]
) -> None:
    """Tell that the tag of a node class names another image now, or still the same."""
    console.document(
        {
            "schema": f"builder/{command}/1",
            "verdict": verdict,
            **class_tag_document(tag, done.digest, evidence),
            "tags": [tag.name],
            "previous": str(done.previous) if done.previous else None,
        },
        lambda: f"{verdict.replace('-', ' ')} {tag.ref}@{done.digest}\nbefore: {done.previous or 'nothing'}",
    )


def open_reference(console: Console, reference: Reference, *, plain_http: bool, mirrors: bool = False) -> Repository:
    """The repository of a reference, with this process's environment; by way of its `mirrors` when it is only read."""
    from builder.registry import open_repository

    return open_repository(
        reference,
        environ=os.environ,
        offline=console.offline,
        plain_http=True if plain_http else None,
        mirrors=mirrors,
        reporter=console,
    )


def repository_reference(text: str) -> Reference:
    """Parse a reference that names a repository only."""
    reference = parse_ref(text)
    if reference.tag is not None or reference.digest is not None:
        raise BadInput(
            f"not a repository: {text!r}",
            why="this command works on the tags of a whole repository",
            fix=f"leave out {':' + reference.tag if reference.tag else '@' + str(reference.digest)}",
        )
    return reference


def class_name(node_class: str | None) -> str:
    """The name of a known node class or of a class file; of this machine when none is given."""
    from builder.node import node_class as load
    from builder.node import probe

    return probe(None).name if node_class is None else load(node_class).name


def image_name(reference: Reference) -> str:
    """What statements call the image: the repository's name, or the layout's folder."""
    return reference.path.resolve().name if isinstance(reference, LayoutRef) else reference.repository


def now() -> str:
    """UTC, ISO 8601, to the microsecond: two moves of a tag do not share it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def attach_drafts(console: Console, repository: Repository, image: Digest, *drafts: Draft) -> None:
    """Attach evidence to an image of the repository, and say under which digests."""
    from builder.registry.errors import MissingContent
    from builder.release.evidence import attach

    manifest = repository.manifest(image)
    if manifest is None:
        raise MissingContent(f"{image} is not in {repository}", fix="push the image first")
    for digest in attach(repository, manifest.descriptor, drafts):
        console.note(f"attached {digest}")


def evidence_documents(found: Iterable[Evidence]) -> list[dict[str, Any]]:
    """Evidence as the JSON documents show it."""
    return [
        {
            "digest": str(piece.digest),
            "kind": piece.kind,
            "artifact_type": piece.artifact_type,
            "predicate_type": piece.predicate_type,
            "summary": dict(piece.summary),
        }
        for piece in found
    ]


def print_refusal(console: Console, command: str, error: Refused, document: Mapping[str, Any]) -> int:
    """Say no: the command's own document under --json, the error's text on stderr otherwise. Returns the exit code."""
    if not console.json:
        print_error(error)
        return error.exit_code
    print_document(
        {
            "schema": f"builder/{command}/1",
            "verdict": "refused",
            **document,
            "kind": error.kind,
            "what": error.what,
            "why": error.why,
            "fix": error.fix,
        }
    )
    return error.exit_code


def existing_file(*names: str, help: str, multiple: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: A002 - click's word
    """An option that takes a file."""
    return click.option(
        *names,
        type=click.Path(path_type=Path, dir_okay=False),
        multiple=multiple,
        default=() if multiple else None,
        help=help,
    )


_PASSWORD = "BUILDER_KEY_PASSWORD"  # noqa: S105 - the name of a variable


def password_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--password-file`, for the private key that a command signs with."""
    help_text = f"File with the key's password in its first line [default: {_PASSWORD}]."
    return existing_file("--password-file", help=help_text)(function)


def key_password(path: Path | None) -> bytes | None:
    """The password of a private key, from its file or from the environment; None for none."""
    if path is None:
        text = os.environ.get(_PASSWORD)
        return text.encode() if text else None
    try:
        return path.read_bytes().split(b"\n", 1)[0].rstrip(b"\r") or None
    except OSError as error:
        raise BadInput(f"cannot read {path}", why=str(error.strerror), where=where_path(path)) from error
