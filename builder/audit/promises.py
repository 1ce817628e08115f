"""What a wheel promises by its name, its WHEEL tag and its RECORD, held against the files in it.

None of this is about backends, and none of it changes the level; a broken promise fails on somebody's machine.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder import resources
from builder.audit.facts import ElfFacts, WheelFacts
from builder.audit.floors import symbol_floors, version_key
from builder.audit.judge import promised_machine
from builder.audit.nested import MARK
from builder.audit.tables import load_tables
from builder.audit.values import Finding, Severity
from builder.errors import BadInput, where_path

__all__ = [
    "Promise",
    "glibc_findings",
    "hash_matches",
    "promise_findings",
    "promise_of",
    "record_faults",
    "record_rows",
]

_OWN = {"GLIBCXX": "libstdc++", "CXXABI": "libstdc++", "GCC": "libgcc_s", "ZLIB": "libz", "LIBATOMIC": "libatomic"}
"""Family of symbol versions to the library that has them; a wheel that brings it promises nothing about others."""
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_\w+")
_FRAMEWORKS = ("libtorch", "libc10", "libtensorflow", "libjax")
_SHOWN = 4
_SIGNATURES = ("RECORD", "RECORD.jws", "RECORD.p7s")
"""Files of .dist-info that RECORD cannot or need not list (PEP 376, PEP 427)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """The oldest system that a tag says is enough."""

    tag: str
    glibc: str
    newest: Mapping[str, str]
    """Family to the newest symbol version; only GLIBC where no policy says more."""
    libraries: frozenset[str]
    """SONAMEs that every such system has; empty where no policy says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Policy:
    glibc: str
    newest: Mapping[str, Mapping[str, str]]
    """Machine to family to the newest version."""
    libraries: frozenset[str]


@cache
def _policies() -> dict[str, _Policy]:
    """checks/policies/manylinux.toml: tag without its machine, older names too."""
    path = resources.policies_dir() / "manylinux.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        since = {name: version_key(first) for name, first in table["libraries"].items()}
        found: dict[str, _Policy] = {}
        for row in table["policy"]:
            glibc = row["glibc"]
            policy = _Policy(
                glibc=glibc,
                newest={machine: row[machine] for machine in ("x86_64", "aarch64") if machine in row},
                libraries=frozenset(name for name, first in since.items() if first <= version_key(glibc)),
            )
            found |= dict.fromkeys((f"manylinux_{glibc.replace('.', '_')}", *row.get("aliases", ())), policy)
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"cannot use {path.name}", why=str(error), where=where_path(path)) from error
    return found


def promise_of(file: str) -> Promise | None:
    """The least that any tag of a wheel's file name promises; None for a tag without a promise (linux_…, any)."""
    try:
        tags = {tag.platform for tag in parse_wheel_filename(file)[3]}
    except InvalidWheelFilename:
        return None
    found: list[Promise] = []
    for tag in sorted(tags):
        name, policy = next((item for item in _policies().items() if tag.startswith(f"{item[0]}_")), ("", None))
        match = _MANYLINUX.fullmatch(tag)
        glibc = policy.glibc if policy else f"{match[1]}.{match[2]}" if match else ""
        if glibc:
            newest = policy.newest.get(tag.removeprefix(f"{name}_"), {}) if policy else {}
            libraries = policy.libraries if policy else frozenset()
            found.append(Promise(tag=tag, glibc=glibc, newest={"GLIBC": glibc, **newest}, libraries=libraries))
    return min(found, key=lambda promise: version_key(promise.glibc), default=None)


def promise_findings(facts: WheelFacts, *, backend: str, chain: tuple[str, ...]) -> Iterator[Finding]:
    """Symbol floors, machines, native code in a wheel for any machine, RECORD, executable stacks."""

    def finding(rule: str, path: str, evidence: str, fix: str = "", severity: Severity = "warning") -> Finding:
        return Finding(
            rule=rule, severity=severity, backend=backend, path=path, evidence=evidence, chain=chain, fix=fix
        )

    yield from (
        finding(
            "newer-symbols-than-the-tag",
            path,
            evidence,
            f"needs an image with these versions although the tag {tag} says less; use another build of {facts.name}",
        )
        for path, evidence, tag in _broken_floors(facts)
    )
    yield from (finding(*found) for found in _machines(facts))
    outside = dict(_outside(facts))
    if outside:
        yield finding(
            "library-outside-the-tag",
            next(iter(outside.values())),
            f"needs {_listed(sorted(outside))}, which neither the wheel brings nor every system of its tag has",
            "the image must bring them, or a requirement of the wheel",
            severity="info",
        )
    if facts.record:
        yield finding(
            "record-mismatch",
            f"{facts.file}",
            "RECORD and the archive disagree: " + _listed(facts.record),
            "fetch it again; if it stays, report it to the package's makers",
        )
    stacks = [elf.path for elf in facts.elf if elf.exec_stack and elf.type != "relocatable"]
    if stacks:
        yield finding(
            "executable-stack",
            stacks[0],
            f"asks for an executable stack (PT_GNU_STACK): {_listed(stacks)}",
            "glibc 2.41 and newer refuse to dlopen such a library; clear the flag (patchelf --clear-execstack), or ask "
            "the makers to link with -z noexecstack",
        )


def glibc_findings(facts: WheelFacts, glibc: str, *, backend: str, chain: tuple[str, ...]) -> Iterator[Finding]:
    """Files that cannot load beside the image's own `glibc`, whatever the tag promises; or a tag that asks for a newer
    one, which no installer takes there."""
    floor = symbol_floors(_native(facts)).get("GLIBC")
    if floor is not None and version_key(floor[0]) > version_key(glibc):
        yield Finding(
            rule="newer-glibc-than-the-image",
            severity="error",
            backend=backend,
            path=floor[1],
            evidence=f"needs GLIBC_{floor[0]}, the image has glibc {glibc}",
            chain=chain,
            fix=f"choose a base with glibc {floor[0]} or newer, or an older build of {facts.name}",
            means="block",
        )
        return
    promise = promise_of(facts.file)
    if promise is not None and version_key(promise.glibc) > version_key(glibc):
        yield Finding(
            rule="newer-glibc-than-the-image",
            severity="error",
            backend=backend,
            path=facts.file,
            evidence=f"its tag {promise.tag} asks for glibc {promise.glibc}, the image has glibc {glibc} and takes "
            f"manylinux_{glibc.replace('.', '_')} at most",
            chain=chain,
            fix=f"choose a base with glibc {promise.glibc} or newer, or rebuild {facts.name} for manylinux_2_28",
            means="block",
        )


def _native(facts: WheelFacts) -> tuple[ElfFacts, ...]:
    """The files that load on the promised machine."""
    machine = promised_machine(facts.file)
    return tuple(elf for elf in facts.elf if elf.type != "relocatable" and machine in (None, elf.machine))


def _broken_floors(facts: WheelFacts) -> Iterator[tuple[str, str, str]]:
    """(file, evidence, tag) for each family of symbol versions above the promise."""
    promise = promise_of(facts.file)
    if promise is None:
        return
    inside = {(elf.soname or elf.path.rsplit("/", 1)[-1]).partition(".so")[0] for elf in facts.elf}
    for family, (version, path) in symbol_floors(_native(facts)).items():
        most = promise.newest.get(family)
        own = any(re.fullmatch(rf"{re.escape(_OWN.get(family, ''))}(-[0-9a-f]+)?", name) for name in inside)
        if most is not None and not own and version_key(version) > version_key(most):
            yield path, f"needs {family}_{version}, {promise.tag} promises {family}_{most} at most", promise.tag


def _outside(facts: WheelFacts) -> Iterator[tuple[str, str]]:
    """(library, file) of what the policy of the tag does not let a wheel take from the system (PEP 600).

    Vendors' libraries and frameworks' are told by other rules: no policy has them.
    """
    promise = promise_of(facts.file)
    if promise is None or not promise.libraries:
        return
    inside = {name for elf in facts.elf for name in (elf.soname, elf.path.rsplit("/", 1)[-1]) if name}
    tables = load_tables()
    for elf in _native(facts):
        if MARK in elf.path:
            continue
        for name in elf.needed:
            known = name in promise.libraries or name in inside or name.startswith(("ld-linux", "ld64", *_FRAMEWORKS))
            if not known and tables.library(name) is None:
                yield name, elf.path


def _machines(facts: WheelFacts) -> Iterator[tuple[str, str, str, str, Severity]]:
    """(rule, path, evidence, fix, severity) for files of another processor."""
    files = [elf for elf in facts.elf if elf.type in ("shared", "executable")]
    tag = facts.file.removesuffix(".whl").rsplit("-", 1)[-1]
    if tag == "any" and files:
        machines = " and ".join(sorted({elf.machine for elf in files}))
        loaded = [elf.path for elf in files if elf.python_module] or [elf.path for elf in files]
        yield (
            "native-code-for-any-machine",
            loaded[0],
            f"the tag says any machine, {_listed(loaded)} is for {machines}",
            "nothing to do on that machine; ask the makers for a platform tag",
            "info",
        )
    machine = promised_machine(facts.file)
    others = [elf for elf in files if machine is not None and elf.machine != machine]
    if others:
        wrong = [elf for elf in others if elf.python_module]
        alone = len(others) == len(files)
        shown = [f"{elf.path} ({elf.machine})" for elf in (wrong or others)]
        yield (
            "foreign-machine",
            (wrong or others)[0].path,
            f"the tag promises {machine}, found {_listed(shown)}",
            f"the wheel was built or labelled wrongly: use another build of {facts.name}" if wrong or alone else "",
            "warning" if wrong or alone else "info",
        )


def _listed(items: Iterable[str]) -> str:
    found = list(items)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def record_faults(record: bytes, sizes: dict[str, int], small: dict[str, bytes]) -> tuple[str, ...]:
    """What RECORD says that the archive does not hold, and the other way round; in order of the archive.

    `sizes` has every member; `small` the content of some, whose hashes are checked (sha256 and better).
    """
    try:
        rows = record_rows(record)
    except csv.Error as error:
        return (f"RECORD cannot be read: {error}",)
    found: list[str] = []
    for name, size in sizes.items():
        if name not in rows:
            if not (".dist-info/" in name and name.rsplit("/", 1)[-1] in _SIGNATURES):
                found.append(f"{name} is not listed")
            continue
        digest, length = rows[name]
        if length.isdigit() and int(length) != size:
            found.append(f"{name} has {size} bytes, {length} are listed")
        elif name in small and not _matches(digest, small[name]):
            found.append(f"{name} does not have the listed hash")
    found += [f"{name} is listed and not there" for name in rows if name not in sizes]
    return tuple(found)


def record_rows(record: bytes) -> dict[str, tuple[str, str]]:
    """Path to (hash as listed, length as listed); `csv.Error` for what is no table."""
    rows: dict[str, tuple[str, str]] = {}
    for row in csv.reader(record.decode("utf-8", "replace").splitlines()):
        if row:
            rows[row[0]] = (row[1] if len(row) > 1 else "", row[2] if len(row) > 2 else "")
    return rows


def _matches(listed: str, data: bytes) -> bool:
    return hash_matches(listed, (data,))


def hash_matches(listed: str, pieces: Iterable[bytes]) -> bool:
    """Whether content has the hash that RECORD lists; one of a kind that is not strong is believed (PEP 376)."""
    name, _, value = listed.partition("=")
    if name not in ("sha256", "sha384", "sha512"):
        return True
    hasher = hashlib.new(name)
    for piece in pieces:
        hasher.update(piece)
    return base64.urlsafe_b64encode(hasher.digest()).rstrip(b"=").decode() == value
