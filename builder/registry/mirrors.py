"""The user's mirrors, as podman, skopeo and buildah have them configured.

Source: containers-registries.conf(5), version 2: `[[registry]]` with `prefix`, `location`, `insecure`, `blocked`,
`mirror-by-digest-only` and `[[registry.mirror]]` with `location`, `insecure` and `pull-from-mirror`. As there, mirrors
are for reading; what is written goes to the registry itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from builder.errors import BadInput, BuilderError, Refused, did_you_mean, where_path
from builder.names import RegistryRef, parse_ref

__all__ = ["Pull", "Source", "Sources", "find_sources"]

_SYSTEM = Path("/etc/containers")
_USER = ".config/containers"

Pull = Literal["all", "digest-only", "tag-only"]
"""For which questions a mirror is asked (`pull-from-mirror`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One place that a repository can be read from."""

    reference: RegistryRef
    """Without tag and digest."""
    plain_http: bool
    """The user marked it as insecure, which here means plain http."""
    pull: Pull = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Mirrors in the order they are asked, and the registry itself, which is asked last."""

    mirrors: tuple[Source, ...]
    primary: Source


def find_sources(reference: RegistryRef, environ: Mapping[str, str]) -> Sources:
    """Where the user lets a repository be read from; the registry itself alone when nothing is configured.

    `$CONTAINERS_REGISTRIES_CONF` names the one file that is read; else it is the user's registries.conf or the
    system's, and the files of registries.conf.d of both, a later `[[registry]]` replacing one of the same prefix.
    `Refused` for a registry that is blocked, `BadInput` for a file that cannot be read.
    """
    found: dict[str, tuple[dict[str, Any], Path]] = {}
    for path in _files(environ):
        for row in _rows(path):
            found[_text(row, "prefix", path) or _text(row, "location", path)] = (row, path)
    name = _full_name(reference)
    matches = [(prefix, base) for prefix in found if prefix and (base := _matched(prefix, name)) is not None]
    bare = RegistryRef(reference.host, reference.repository)
    if not matches:
        return Sources(mirrors=(), primary=Source(reference=bare, plain_http=False))
    prefix, base = max(matches, key=lambda item: (len(item[1]), len(item[0])))
    row, path = found[prefix]
    if row.get("blocked") is True:
        raise Refused(
            f"{bare} is not asked",
            why=f"the registry {prefix} is blocked for this user",
            fix="take the image from elsewhere, or unblock it there",
            where=where_path(path),
        )
    by_digest = row.get("mirror-by-digest-only") is True
    mirrors = tuple(
        Source(
            reference=_renamed(_text(mirror, "location", path), name, base, path),
            plain_http=mirror.get("insecure") is True,
            pull=_pull(mirror, by_digest=by_digest, path=path),
        )
        for mirror in row.get("mirror") or ()
    )
    location = _text(row, "location", path)
    primary = bare if location in ("", base) else _renamed(location, name, base, path)
    return Sources(mirrors=mirrors, primary=Source(reference=primary, plain_http=row.get("insecure") is True))


def _files(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("CONTAINERS_REGISTRIES_CONF")
    if named:
        return [Path(named)]
    folders = [_SYSTEM, *([Path(environ["HOME"]) / _USER] if environ.get("HOME") else [])]
    main = next((file for folder in reversed(folders) if (file := folder / "registries.conf").is_file()), None)
    more = {file.name: file for folder in folders for file in (folder / "registries.conf.d").glob("*.conf")}
    return [*([main] if main else []), *(more[name] for name in sorted(more))]


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            rows = tomllib.load(file).get("registry") or []
    except (OSError, tomllib.TOMLDecodeError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise BadInput(
            f"cannot read the registries of {path}",
            why=why,
            fix="mend the file, or name another in CONTAINERS_REGISTRIES_CONF",
            where=where_path(path),
        ) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _malformed(path, "registry is not an array of tables")
    for row in rows:
        mirrors = row.get("mirror") or []
        if not isinstance(mirrors, list) or not all(isinstance(mirror, dict) for mirror in mirrors):
            raise _malformed(path, "registry.mirror is not an array of tables")
    return rows


def _text(row: Mapping[str, Any], key: str, path: Path) -> str:
    value = row.get(key, "")
    if not isinstance(value, str):
        raise _malformed(path, f"{key} is not a text: {value!r}")
    return value.rstrip("/")


def _pull(mirror: Mapping[str, Any], *, by_digest: bool, path: Path) -> Pull:
    named = _text(mirror, "pull-from-mirror", path) or ("digest-only" if by_digest else "all")
    if named not in get_args(Pull):
        raise _malformed(path, f"pull-from-mirror is {named!r}", did_you_mean(named, get_args(Pull)))
    return cast("Pull", named)


def _malformed(path: Path, why: str, fix: str = "") -> BadInput:
    return BadInput(
        f"cannot use the registries of {path}",
        why=why,
        fix=fix or "see containers-registries.conf(5), version 2",
        where=where_path(path),
    )


def _full_name(reference: RegistryRef) -> str:
    """Host and repository as the files spell them: one name on docker.io alone is library/NAME."""
    short = reference.host == "docker.io" and "/" not in reference.repository
    return f"{reference.host}/{'library/' if short else ''}{reference.repository}"


def _matched(prefix: str, name: str) -> str | None:
    """The part of the name that a prefix covers: whole components, or with `*.` one host below a domain."""
    if prefix.startswith("*."):
        host = name.partition("/")[0]
        return host if host.partition(":")[0].endswith(prefix[1:]) else None
    return prefix if name == prefix or name.startswith(f"{prefix}/") else None


def _renamed(location: str, name: str, base: str, path: Path) -> RegistryRef:
    if not location:
        raise _malformed(path, "a mirror has no location")
    try:
        made = parse_ref(f"{location}{name[len(base) :]}")
    except BuilderError as error:
        raise _malformed(path, f"location {location!r}: {error.why or error.what}") from error
    if not isinstance(made, RegistryRef) or made.tag is not None or made.digest is not None:
        raise _malformed(path, f"location {location!r} is not the name of a registry or repository")
    return made
