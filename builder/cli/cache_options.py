"""Options that name a cache and a key, shared by the subcommands of `builder cache`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.errors import BadInput

if TYPE_CHECKING:
    from builder.cache import Difference, EngineCache, EngineKey, EngineKind, Entry
    from builder.cli.console import Console
    from builder.names import Digest
    from builder.node.values import NodeClass

__all__ = [
    "KeyOptions",
    "cache_of",
    "cache_option",
    "check_properties",
    "difference_document",
    "entry_document",
    "key_options",
    "note_no_cache",
    "parse_bytes",
    "parse_model",
    "parse_pairs",
    "shown_size",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyOptions:
    """What a command line says of the engine that is wanted or kept."""

    kind: str
    model: str | None
    settings: tuple[str, ...]
    node_class: str | None
    probe: bool
    env: bool
    variables: tuple[str, ...]

    def engine_kind(self) -> EngineKind:
        """The kind, from its table."""
        from builder.cache import engine_kind

        return engine_kind(self.kind)

    def key(self) -> EngineKey:
        """The key; `BadInput` for a property the kind does not have, or one that cannot be read."""
        from builder.cache import engine_key

        return engine_key(
            self.engine_kind(),
            model=parse_model(self.model),
            properties=parse_pairs("--set", self.settings),
            node=self._node(),
            environment={**(os.environ if self.env else {}), **parse_pairs("--env-var", self.variables)},
        )

    def _node(self) -> NodeClass | None:
        if self.node_class is not None and self.probe:
            raise BadInput("--node-class and --probe are given together", fix="keep one of them")
        if self.node_class is None and not self.probe:
            return None
        from builder.node import node_class, probe

        return probe() if self.node_class is None else node_class(self.node_class)


def parse_model(text: str | None) -> Digest | None:
    """`--model`: a digest as it stands, else the digest of a file or folder."""
    from builder.cache.model import model_digest
    from builder.names import Digest

    if text is None:
        return None
    if re.fullmatch(r"(sha256:)?[0-9a-fA-F]{64}", text):
        return Digest.parse("sha256:" + text.lower().removeprefix("sha256:"))
    return model_digest(Path(text))


def parse_pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` of an option that may be given several times."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(f"{option} {text!r} is not of the form NAME=VALUE", fix=f"e.g. {option} precision=fp16")
        if name in pairs:
            raise BadInput(f"{option} {name} is given twice", fix="keep one")
        pairs[name] = value
    return pairs


def check_properties(kind: str | None, properties: Mapping[str, str]) -> None:
    """`BadInput` for a kind there is not, or a property that it does not have or whose value cannot be read."""
    from builder.cache import engine_key, engine_kind

    if kind is not None:
        engine_key(engine_kind(kind), properties=properties)


_KEY_OPTIONS = (
    click.argument("kind"),
    click.option(
        "--model", metavar="PATH|DIGEST", help="The model: its file or folder, which is digested, or sha256:… itself."
    ),
    click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A property, e.g. precision=fp16; repeatable."
    ),
    click.option("--node-class", default=None, metavar="NAME|FILE", help="Take the device from a node class."),
    click.option("--probe", is_flag=True, help="Take the device from this machine."),
    click.option("--env", is_flag=True, help="Take the variables the kind names from this environment."),
    click.option(
        "--env-var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the environment; repeatable."
    ),
)


def key_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add KIND and the options that make a key; passes them as `wanted`, a `KeyOptions`."""
    import functools

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> int:
        names = ("kind", "model", "settings", "node_class", "probe", "env", "variables")
        wanted = KeyOptions(**{name: options.pop(name) for name in names})
        return function(*arguments, wanted=wanted, **options)

    result: Callable[..., int] = wrapped
    for option in reversed(_KEY_OPTIONS):
        result = option(result)
    return result


def cache_option(function: Callable[..., int]) -> Callable[..., int]:
    """Add `--cache`, the folder of the cache."""
    return click.option(
        "--cache",
        "folder",
        type=click.Path(path_type=Path, file_okay=False),
        default=None,
        help="Folder of the cache; may be shared between machines [default: engines/v1 in the store].",
    )(function)


def cache_of(folder: Path | None, *, durable: bool = True) -> EngineCache:
    """The cache in a folder, or the user's."""
    from builder.cache import EngineCache

    return EngineCache(folder, durable=durable) if folder else EngineCache.of_user(durable=durable)


def note_no_cache(console: Console, cache: EngineCache) -> None:
    """Say that the folder of the cache does not exist: an empty answer may be a path misspelled."""
    if not cache.store.root.is_dir():
        console.note(f"there is no cache at {cache.store.root}: nothing was ever kept there")


def difference_document(one: Difference) -> dict[str, Any]:
    """One difference, as all commands print it."""
    return {
        "property": one.name,
        "wanted": one.wanted,
        "found": one.found,
        "class": one.hold,
        "meaning": one.meaning,
        "why": one.why,
        "cost": one.cost,
        "source": one.source,
    }


def entry_document(entry: Entry) -> dict[str, Any]:
    """One entry, as all commands print it."""
    return {
        "key": str(entry.digest),
        "kind": entry.key.kind,
        "name": entry.name,
        "form": entry.form,
        "content": str(entry.content),
        "size": entry.size,
        "files": entry.files,
        "created": entry.created,
        "tool": entry.tool,
        "notes": list(entry.notes),
        "factors": entry.key.to_json(),
    }


_POWERS = "kmgt"


def parse_bytes(text: str) -> int:
    """`20GB`, `512MiB`, `1000`; decimal units are powers of a thousand."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise BadInput(f"not a size: {text!r}", fix="e.g. 20GB or 512MiB")
    unit = (match[2] or "").lower()
    power = _POWERS.index(unit[0]) + 1 if unit else 0
    return int(float(match[1]) * (1024 if unit.endswith("i") else 1000) ** power)


def shown_size(size: int) -> str:
    """`1.2 GB`."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
