"""The words of the engine cache.

- **engine**: what a compiler made for a device: one file or a folder of files (TensorRT plan, Triton cache, NEFF …).
- **property**: one thing an engine's validity depends on; a row of matrices/engines/<kind>.toml.
- **factor**: a property with its value, for one engine or for one machine that wants one.
- **key**: the digest over all factors; equal keys mean that nothing differs.
- **entry**: an engine in the store, with its factors.
- **difference**: a property by which an entry is not what is wanted, and what that means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Self

from builder.errors import BadInput
from builder.names import Digest

__all__ = [
    "ENTRY_SCHEMA",
    "KEY_SCHEMA",
    "MODEL",
    "Difference",
    "EngineKey",
    "Entry",
    "Factor",
    "Failure",
    "ForeignEntry",
    "Group",
    "Hold",
    "Lookup",
    "Meaning",
    "Nearest",
    "Verdict",
    "canonical_json",
]

KEY_SCHEMA = "builder/engine-key/1"
ENTRY_SCHEMA = "builder/engine-entry/1"

MODEL = "model"
"""The factor every kind has: the digest of the model's weights and configuration."""

Hold = Literal["hard", "soft", "forgotten"]
"""What a property decides. hard: must be equal, or satisfy its rule; soft: a difference makes an engine usable, not
unusable; forgotten: as hard, and not in the key of the system that made the engine."""

Group = Literal["model", "option", "builder", "device", "env", "format"]
"""Where a factor comes from: the model, the options of the build, the versions of what built it, the machine, a named
environment variable, the header of the artefact itself."""

Verdict = Literal["hit", "usable", "miss", "unknown"]
Meaning = Literal["differs", "costs", "unknown"]
"""differs: the rule is not satisfied; costs: it is satisfied, at a price; unknown: one side is not known."""


class ForeignEntry(BadInput):
    """A document of another version of this tool: no damage, and nothing this version can read."""

    kind = "foreign-entry"


def canonical_json(value: object) -> bytes:
    """The one text of a JSON value: sorted keys, no spaces, UTF-8 (RFC 8785; there are no numbers in keys)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True, order=True)
class Factor:
    """One property and its value, in the canonical spelling of the property's form."""

    name: str
    value: str

    @property
    def digest(self) -> Digest:
        """sha256 of the canonical JSON `{name: value}`: two lists of factors are compared without showing values."""
        return Digest.of(canonical_json({self.name: self.value}))


@dataclass(frozen=True, slots=True)
class EngineKey:
    """What an engine is for, or what is wanted: a kind and its known factors. A property without a factor is not known.

    Made by `builder.cache.keys.engine_key`, which spells values canonically; compared by value.
    """

    kind: str
    factors: Mapping[str, str]
    """Property name to value."""
    digest: Digest = field(init=False, repr=False, compare=False)
    """sha256 of the canonical JSON `{"factors": {name: value, …}, "kind": …, "schema": "builder/engine-key/1"}`."""

    def __post_init__(self) -> None:
        text = canonical_json({"factors": dict(self.factors), "kind": self.kind, "schema": KEY_SCHEMA})
        object.__setattr__(self, "digest", Digest.of(text))

    @property
    def model(self) -> str | None:
        """The model's digest, as text."""
        return self.factors.get(MODEL)

    def __iter__(self) -> Iterator[Factor]:
        """The factors by name."""
        for name in sorted(self.factors):
            yield Factor(name, self.factors[name])

    def __hash__(self) -> int:
        return hash(self.digest)

    def to_json(self) -> list[dict[str, str]]:
        """The list that travels beside an engine: each factor with its own digest."""
        return [{"name": one.name, "value": one.value, "digest": str(one.digest)} for one in self]


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One engine in a store. Its document is a small JSON object, the factors travel in it."""

    key: EngineKey
    digest: Digest
    """Digest of the key, and the entry's name."""
    form: Literal["file", "tree"]
    name: str
    """Name of the file or folder, without its path."""
    content: Digest
    """A file: the digest of its bytes. A tree: the digest of its manifest (builder.cache.trees)."""
    manifest_size: int = 0
    """Bytes of the manifest of a tree; 0 for a file."""
    size: int
    """Bytes of all files together, as they are when restored."""
    files: int
    created: str
    """UTC, ISO 8601 with a Z. Says something to people; nothing is decided by it."""
    tool: str
    """The version of builder that stored it."""
    notes: tuple[str, ...] = ()
    """What somebody should know before using it elsewhere, such as absolute paths inside."""

    def to_json(self) -> dict[str, Any]:
        """The entry's document."""
        return {
            "schema": ENTRY_SCHEMA,
            "key": str(self.digest),
            "kind": self.key.kind,
            "factors": self.key.to_json(),
            "form": self.form,
            "name": self.name,
            "content": str(self.content),
            "manifest_size": self.manifest_size,
            "size": self.size,
            "files": self.files,
            "created": self.created,
            "tool": self.tool,
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, data: Any, where: str, *, known: EngineKey | None = None) -> Self:
        """Read and check a document; `ForeignEntry` for another schema, `BadInput` for a damaged one.

        `known` is the key that is asked for: a document that names it is of it, and its factors are not read.
        """
        if not isinstance(data, dict):
            raise BadInput(f"{where} is no entry of an engine cache", why="it is not a JSON object")
        if data.get("schema") != ENTRY_SCHEMA:
            raise ForeignEntry(
                f"{where} is of another version of this tool",
                why=f"its schema is {data.get('schema')!r}, this version reads {ENTRY_SCHEMA!r}",
                fix="read it with that version; it stays where it is",
            )
        try:
            if known is not None and data["key"] == f"sha256:{known.digest.hex}" and data["kind"] == known.kind:
                key, digest = known, known.digest
            else:
                factors = {str(one["name"]): str(one["value"]) for one in data["factors"]}
                key, digest = EngineKey(str(data["kind"]), MappingProxyType(factors)), Digest.parse(data["key"])
            entry = cls(
                key=key,
                digest=digest,
                form="tree" if data["form"] == "tree" else "file",
                name=str(data["name"]),
                content=Digest.parse(data["content"]),
                manifest_size=int(data["manifest_size"]),
                size=int(data["size"]),
                files=int(data["files"]),
                created=str(data["created"]),
                tool=str(data["tool"]),
                notes=tuple(map(str, data["notes"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{where} is damaged", why=f"the document lacks or misspells {error}") from error
        if entry.name in ("", ".", "..") or "/" in entry.name or data["form"] not in ("file", "tree"):
            raise BadInput(f"{where} is damaged", why=f"{entry.name!r} is no name of a {data['form']}")
        if entry.key.digest != entry.digest:
            raise BadInput(
                f"{where} is damaged", why=f"its factors give the key {entry.key.digest}, not {entry.digest}"
            )
        return entry


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One property by which an entry is not exactly what is wanted."""

    name: str
    """The property."""
    wanted: str | None
    """None when not known."""
    found: str | None
    hold: Hold
    meaning: Meaning
    why: str
    """What the difference means, in one sentence."""
    cost: str = ""
    """What using the engine nevertheless costs; empty when it cannot be used."""
    source: str = ""

    @property
    def blocks(self) -> bool:
        """Whether the engine cannot be used for it, as far as is known."""
        return self.hold != "soft" and self.meaning == "differs"

    @property
    def undecided(self) -> bool:
        """Whether something that decides is not known."""
        return self.hold != "soft" and self.meaning == "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Nearest:
    """An entry that does not fit, and exactly why."""

    entry: Entry
    differs: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A build of exactly this key that failed, remembered for a while."""

    reason: str
    created: float
    """Seconds since the epoch."""
    expires: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Lookup:
    """The answer to: is there an engine for this?"""

    verdict: Verdict
    wanted: EngineKey
    entry: Entry | None = None
    """hit, usable: the entry to use. unknown: the one that may fit."""
    differs: tuple[Difference, ...] = ()
    """hit: empty. usable: what differs, with its cost. unknown, miss: what differs from the nearest entry."""
    nearest: tuple[Nearest, ...] = ()
    """miss and unknown: the closest entries of the same kind and model, fewest differences first."""
    missing: tuple[str, ...] = ()
    """Properties that decide, and are not stated."""
    failure: Failure | None = None
    """miss: this very build failed lately, and why."""
    hints: tuple[str, ...] = ()
    """What to do about the answer."""
