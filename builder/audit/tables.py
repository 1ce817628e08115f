"""The audit's facts about vendors: checks/policies/*.toml as typed values. No judgement here."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from builder import resources
from builder.errors import BadInput, where_path

__all__ = [
    "Api",
    "Content",
    "Library",
    "Literal",
    "Mark",
    "MemberRule",
    "Mend",
    "Provider",
    "Providers",
    "Tables",
    "Translation",
    "library_stem",
    "load_contents",
    "load_mends",
    "load_providers",
    "load_tables",
    "load_translations",
]

_SONAME = re.compile(r"(?P<stem>lib[\w.+-]*?)(?:[-.][0-9a-f]{8,64})?\.so(?:\.(?P<version>[\w.-]*))?")
"""A SONAME; repair tools put eight or more hex digits before `.so`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """One vendor library, any version."""

    stem: str
    """SONAME up to `.so`."""
    backend: str
    role: str
    host: bool
    """The node injects it; it must not be in an image."""
    shared: bool
    """Unrelated software uses the name too: counts only beside another library of the backend."""
    versions: Mapping[str, str]
    """SONAME number to the toolkit generation it belongs to."""
    source: str

    @property
    def framework(self) -> bool:
        """Part of a framework's build for the backend, not of the vendor's runtime."""
        return self.role == "framework plug-in"


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """Functions that only one library defines."""

    library: str
    functions: tuple[str, ...]
    defines: str
    """Token for a file that exports them without being the library: `stub` or `static`."""
    prefix: str = ""
    """With what all of its functions begin, before a capital letter; empty where other software does so too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Bytes that a runtime leaves in every file it is linked into."""

    library: str
    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Literal:
    """Names that a compiler holds among its own constants, to look for files or to tell a linker."""

    mark: bytes
    """A constant of every build of that compiler."""
    names: frozenset[str]
    """As the compiler writes them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberRule:
    """Names of members that matter although no loader loads them."""

    kind: str
    backend: str
    names: tuple[str, ...]
    """Shell-style patterns on the file name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """A layer that stands in for another vendor's libraries (checks/policies/translations.toml)."""

    name: str
    backend: str
    """Whose images it is for."""
    of: str
    """The backend whose libraries it stands in for."""
    libraries: tuple[str, ...]
    own: tuple[str, ...]
    source: str
    always: bool = False
    """Whether every image of the backend has it, so that no project declares it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """Distributions that bring libraries (checks/policies/providers.toml)."""

    libraries: tuple[str, ...]
    """Patterns of stems."""
    distributions: tuple[str, ...]
    """Patterns of normalised names."""
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Providers:
    """All of providers.toml."""

    providers: tuple[Provider, ...]
    system: frozenset[str]
    """Stems that every system has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """What a wheel published for a backend must hold (checks/policies/contents.toml)."""

    name: str
    """Pattern of normalised names."""
    backend: str
    source: str
    label: str = ""
    """Pattern of one segment of the local version label; empty for any version."""
    library: str = ""
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Mend:
    """What to take instead of a distribution for one backend (checks/policies/mends.toml)."""

    names: tuple[str, ...]
    """Patterns of normalised names."""
    backend: str
    use: str
    """What to write instead; {name} and {version} are filled in."""
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """All of checks/policies that scanning needs."""

    libraries: Mapping[str, Library]
    """By stem."""
    apis: tuple[Api, ...]
    marks: tuple[Mark, ...]
    interfaces: tuple[str, ...]
    """Functions by which a plug-in of any vendor is entered."""
    loaders: frozenset[str]
    """Functions that open a library by its name."""
    stems: tuple[str, ...]
    """Stems looked for as constants of their own, where programs put names together."""
    begins: tuple[str, ...]
    """Further stems looked for by their first bytes, where names have no end."""
    literals: tuple[Literal, ...]
    """Compilers' own constants."""
    members: tuple[MemberRule, ...]
    exact_members: frozenset[str]
    """Names that some rule spells out."""
    open_members: re.Pattern[str]
    """Matches a name that some rule's pattern matches: most names match none."""
    amdgpu: Mapping[int, str]
    """EF_AMDGPU_MACH to gfx target."""
    digest: str
    """Hex digest of the tables, part of every cache key."""

    def library(self, name: str) -> Library | None:
        """The vendor library of this file name or SONAME, whatever its version, hash infix or folder."""
        stem = library_stem(name)
        return self.libraries.get(stem) if stem else None

    def opened_library(self, name: str) -> Library | None:
        """As `library`, for names as programs write them: a pattern for printf or a glob, a version to come, a bare
        stem."""
        base = name.rsplit("/", 1)[-1]
        return self.libraries.get(base) or self.library(base.split("%", 1)[0].replace("*", "").rstrip("."))

    def member_rules(self, path: str) -> Iterator[MemberRule]:
        """The rules that a member's name matches."""
        name = path.rsplit("/", 1)[-1]
        if name in self.exact_members or self.open_members.match(name):
            for rule in self.members:
                if any(fnmatchcase(name, pattern) for pattern in rule.names):
                    yield rule


def _is_pattern(name: str) -> bool:
    return any(char in "*?[" for char in name)


@lru_cache(maxsize=1 << 14)
def library_stem(name: str) -> str | None:
    """`libcudart` of `…/libcudart-1a2b3c4d.so.12`; None for a name without `lib….so`."""
    match = _SONAME.fullmatch(name.rsplit("/", 1)[-1]) if ".so" in name else None
    return match["stem"] if match else None


@cache
def load_tables(folder: Path | None = None) -> Tables:
    """Read the tables of `folder` (default: the package's own); `BadInput` names file and row."""
    folder = folder or resources.policies_dir()
    hasher = hashlib.sha256()
    read: dict[str, dict[str, Any]] = {}
    for name in ("libraries", "api", "members", "targets"):
        path = folder / f"{name}.toml"
        data = path.read_bytes()
        hasher.update(data)
        try:
            read[name] = tomllib.loads(data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read {path.name}", why=str(error), where=where_path(path)) from error
    libraries: dict[str, Library] = {}
    for row in read["libraries"]["library"]:
        library = Library(
            stem=row["stem"],
            backend=row["backend"],
            role=row["role"],
            host=row.get("host", False),
            shared=row.get("shared", False),
            versions=row.get("versions", {}),
            source=row["source"],
        )
        if library.stem in libraries and libraries[library.stem].backend != library.backend:
            # One name, two vendors: it can only speak beside another library.
            library = Library(
                stem=library.stem,
                backend=libraries[library.stem].backend,
                role=library.role,
                host=library.host,
                shared=True,
                versions={},
                source=f"{libraries[library.stem].source}; {library.source}",
            )
        libraries[library.stem] = library
    names = [name for row in read["members"]["member"] for name in row["names"]]
    return Tables(
        libraries=libraries,
        apis=tuple(
            Api(
                library=row["library"],
                functions=tuple(row["functions"]),
                defines=row["defines"],
                prefix=row.get("prefix", ""),
            )
            for row in read["api"]["api"]
        ),
        marks=tuple(Mark(library=row["library"], data=bytes.fromhex(row["hex"])) for row in read["api"]["mark"]),
        interfaces=tuple(row["function"] for row in read["api"]["interface"]),
        loaders=frozenset(name for row in read["api"]["loader"] for name in row["functions"]),
        stems=tuple(stem for row in read["api"]["stem"] for stem in row["names"]),
        literals=tuple(
            Literal(mark=row["mark"].encode() + b"\0", names=frozenset(row["names"])) for row in read["api"]["literal"]
        ),
        begins=tuple(stem for row in read["api"]["begin"] for stem in row["names"]),
        members=tuple(
            MemberRule(kind=row["kind"], backend=row["backend"], names=tuple(row["names"]))
            for row in read["members"]["member"]
        ),
        exact_members=frozenset(name for name in names if not _is_pattern(name)),
        open_members=re.compile("|".join(translate(name) for name in names if _is_pattern(name))),
        amdgpu={int(key, 16): value for key, value in read["targets"]["amdgpu"].items()},
        digest=hasher.hexdigest(),
    )


@cache
def load_translations(folder: Path | None = None) -> tuple[Translation, ...]:
    """The layers a project may declare; `BadInput` names file and row."""
    rows = _rows((folder or resources.policies_dir()) / "translations.toml", "translation")
    return tuple(Translation(**{**row, "libraries": tuple(row["libraries"]), "own": tuple(row["own"])}) for row in rows)


@cache
def load_mends(folder: Path | None = None) -> tuple[Mend, ...]:
    """What to take instead; `BadInput` names the file."""
    path = (folder or resources.policies_dir()) / "mends.toml"
    try:
        mends = tuple(Mend(**{**row, "names": tuple(row["names"])}) for row in _rows(path, "mend"))
        for mend in mends:
            mend.use.format(name="", version="")
    except (TypeError, KeyError, ValueError, IndexError) as error:
        raise BadInput(f"cannot use {path.name}", why=str(error), where=where_path(path)) from error
    return mends


@cache
def load_contents(folder: Path | None = None) -> tuple[Content, ...]:
    """What wheels must hold; `BadInput` names file and row."""
    rows = _rows((folder or resources.policies_dir()) / "contents.toml", "content")
    return tuple(Content(**{**row, "tokens": tuple(row.get("tokens", ()))}) for row in rows)


@cache
def load_providers(folder: Path | None = None) -> Providers:
    """Who brings which library; `BadInput` names file and row."""
    path = (folder or resources.policies_dir()) / "providers.toml"
    return Providers(
        providers=tuple(
            Provider(libraries=tuple(row["libraries"]), distributions=tuple(row["distributions"]), source=row["source"])
            for row in _rows(path, "provider")
        ),
        system=frozenset(tomllib.loads(path.read_text(encoding="utf-8"))["system"]["libraries"]),
    )


def _rows(path: Path, name: str) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))[name]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError) as error:
        raise BadInput(f"cannot read {path.name}", why=str(error), where=where_path(path)) from error
    return rows
