"""What a maker's image holds, by its name: the tag says it, and the tables say how to read the tag.

A row of kind `image` is a form of names. `{toolkit}`, `{os}`, `{python}` and `{chip}` stand for those, `{build}` for a
number that says nothing, and any other name in braces for the version of that package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from types import MappingProxyType

from builder.matrix.load import Backend
from builder.matrix.sets import touches
from builder.matrix.systems import normalise_system, same_system
from builder.matrix.tables import Row
from builder.matrix.versions import within

__all__ = ["Contents", "listed", "missing", "of_chip", "read_image", "unread"]

_FIELDS = MappingProxyType(
    {
        "toolkit": r"\d[0-9A-Za-z.]*?(?:-(?:alpha|beta|rc)\.?\d+)?",
        "os": r"[a-z]+\d+(?:\.\d+)?",
        "python": r"\d\.?\d+",
        "chip": r"[0-9a-z]+",
        "build": r"[0-9A-Za-z.-]+?",
    }
)
_VERSION = r"v?\d[0-9A-Za-z.+]*?"
_HOST = re.compile(r"^(?:[^/]*[.:][^/]*|localhost)/")
"""The registry in front of a name: its first part, where that has a dot or a port (distribution reference grammar)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What is in an image, as far as its name tells."""

    image: str
    toolkit: str | None
    os: str | None
    """Normalised: `ubuntu 22.04`."""
    python: str | None
    chip: str | None
    packages: Mapping[str, str]
    row: Row
    """The form the name has."""

    def text(self, title: str) -> str:
        """`CUDA 12.8.1, ubuntu 22.04, Python 3.12, torch 2.9.1`."""
        parts = [
            f"{title} {self.toolkit}" if self.toolkit else None,
            self.os,
            f"Python {self.python}" if self.python else None,
            f"chip {self.chip}" if self.chip else None,
            *(f"{name} {version}" for name, version in self.packages.items()),
            self.row.text("holds"),
        ]
        return ", ".join(part for part in parts if part)


@lru_cache(maxsize=256)
def read_image(backend: Backend, image: str) -> Contents | None:
    """What an image holds; None when no form of the backend's tables fits its name. Its digest is not looked at.

    A name without the path before it, or with its end alone (`cann:8.5.0-910b-…`), is taken for the form that ends so.
    """
    bare = _HOST.sub("", image.partition("@")[0])
    for row in backend.rows("image"):
        form = row.text("form") or ""
        match = _pattern("/".join(form.split("/")[-1 - bare.count("/") :])).fullmatch(bare)
        if match is None:
            continue
        found = {key.replace("_", "-"): value for key, value in match.groupdict().items()}
        python = found.get("python")
        return Contents(
            image=image,
            toolkit=found.get("toolkit"),
            os=normalise_system(found["os"]) if "os" in found else row.text("system"),
            python=f"{python[0]}.{python[1:].lstrip('.')}" if python else None,
            chip=found.get("chip") or row.text("chip"),
            packages=MappingProxyType(
                {key: value.removeprefix("v") for key, value in found.items() if key not in _FIELDS}
            ),
            row=row,
        )
    return None


@lru_cache(maxsize=256)
def _pattern(form: str) -> re.Pattern[str]:
    """A form as a regular expression; what it names more than once must be the same each time."""
    seen: set[str] = set()
    out = []
    for literal, field in re.findall(r"([^{}]+)|\{([^{}]+)\}", form):
        name = field.replace("-", "_")
        if literal:
            out.append(re.escape(literal))
        elif name in seen:
            out.append(f"(?P={name})")
        else:
            seen.add(name)
            out.append(f"(?P<{name}>{_FIELDS.get(field, _VERSION)})")
    return re.compile("".join(out))


def missing(contents: Contents, machine: str | None = None) -> str | None:
    """Why there is no such image, where the tables say for which releases, systems, chips and machines there are."""
    row = contents.row
    if (absent := row.text("absent")) is not None:
        return absent
    bounds = row.texts("toolkits")
    if contents.toolkit is not None and bounds and not any(within(contents.toolkit, bound) for bound in bounds):
        return f"tags of this form are of {' or '.join(bounds)}"
    for asked, column, joint in (
        (contents.os, "systems", "images are on"),
        (contents.chip, "chips", "images are for"),
        (machine, "arches", "images are for"),
    ):
        cells = row.texts(column)
        if asked is None or contents.toolkit is None or not cells:
            continue
        known = {name: bound for name, _, bound in (cell.partition(" ") for cell in cells)}
        found = next((name for name in known if same_system(asked, name) or asked == name), None)
        if found is None:
            return f"{joint} {', '.join(known)}"
        if known[found] and not within(contents.toolkit, known[found]):
            return f"{found} images are of {known[found]}"
    return None


def unread(contents: Contents) -> str | None:
    """Releases whose images nobody has looked at, when this is one: of others the form holds, of this it may."""
    bounds = contents.row.texts("toolkits_read")
    if contents.toolkit is None or not bounds or any(within(contents.toolkit, bound) for bound in bounds):
        return None
    return f"tags of {' and '.join(bounds)} were read"


def of_chip(backend: Backend, contents: Contents, chip: str) -> str | None:
    """The image that is this one but for its chip, where the forms have it: `…:v0.10.0rc1` → `…:v0.10.0rc1-310p`.

    A form that fixes its chip is one of several of a name; that which differs least in the rest of it is taken.
    """
    told = {"toolkit": contents.toolkit, "python": contents.python, "chip": chip, **contents.packages}
    bare = _HOST.sub("", contents.image.partition("@")[0])
    match = _pattern(contents.row.text("form") or "").fullmatch(bare)
    if match is None:
        return None
    told |= {key.replace("_", "-"): value for key, value in match.groupdict().items() if key != "chip"}
    found = []
    for row in backend.rows("image"):
        form = row.text("form") or ""
        if row.text("chip") != chip and "{chip}" not in form:
            continue
        fields = set(re.findall(r"\{([^{}]+)\}", form))
        if form.partition(":")[0] == bare.partition(":")[0] and fields <= told.keys():
            name = re.sub(r"\{([^{}]+)\}", lambda field: told[field[1]] or "", form)
            found.append((SequenceMatcher(None, bare, name).ratio(), name))
    return max(found)[1] if found else None


def listed(backend: Backend, contents: Contents) -> Row | None:
    """The row of the table of bases that is this very image."""
    return next((row for row in backend.rows("base") if _is_row(row, contents)), None)


def _is_row(row: Row, contents: Contents) -> bool:
    toolkit, chip, framework = row.text("toolkit"), row.text("chip"), row.text("framework")
    same_toolkit = contents.toolkit is None or (toolkit or "").casefold() == contents.toolkit.casefold()
    # A row without systems or Pythons has them in its name alone.
    systems = row.texts("os")
    same_os = contents.os is None or systems is None or any(same_system(contents.os, name) for name in systems)
    same_python = contents.python is None or contents.python in (row.texts("python") or (contents.python,))
    name = _repository(row.text("reference") or "")
    return (
        ("{" in name or name == _repository(contents.image))
        and same_toolkit
        and same_os
        and same_python
        and contents.chip in (None, chip)
        and (row.flag("devel") or not contents.row.flag("devel"))
        and (framework is None or _same_framework(framework, contents))
    )


def _repository(reference: str) -> str:
    """The last part of a repository's name: `pytorch-inference-neuronx` and `-neuron` are images for other devices."""
    return reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _same_framework(framework: str, contents: Contents) -> bool:
    """Whether `PyTorch 2.9.0` of a row is among the packages a name tells."""
    name, _, version = framework.rpartition(" ")
    package = {"pytorch": "torch"}.get(name.lower(), name.lower())
    told = contents.packages.get(package)
    return told is not None and (touches(told, version) or touches(version, told))
