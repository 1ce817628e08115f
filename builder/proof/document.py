"""A proof as the JSON document of `builder prove`, and as text with the shortest evidence that convinces."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from builder.proof.values import Assumption, CpuNeed, DeviceCoverage, Proof, SymbolVersion, Unresolved

__all__ = ["SCHEMA", "proof_document", "proof_text"]

SCHEMA = "builder/prove/1"
_SHOWN = 6


def proof_document(proof: Proof, *, reference: str) -> dict[str, Any]:
    """The document; the same proof gives the same bytes."""
    link = proof.link
    return {
        "schema": SCHEMA,
        "verdict": proof.answer,
        "image": {"ref": reference, "digest": str(proof.image)},
        "node_class": proof.node_class,
        "backend": proof.backend,
        "reasons": list(proof.reasons),
        "objects": link.objects,
        "modules": link.modules,
        "programs": list(link.programs),
        "glibc": proof.glibc,
        "unresolved": _plain(link.unresolved),
        "assumed": _plain(link.assumed),
        "host": _plain(link.host),
        "symbol_versions": _plain(link.versions),
        "cpu": _plain(proof.cpu),
        "device_code": _plain(proof.devices),
        "driver": _one(proof.driver),
        "notes": list(proof.notes),
    }


def _one(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # the answer of a part is called as that of the whole
        return {
            "verdict" if field.name == "answer" else field.name: _one(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple | list):
        return [_one(item) for item in value]
    return value


def _plain(values: Sequence[Any]) -> list[Any]:
    return [_one(value) for value in values]


def proof_text(proof: Proof, *, reference: str, verdict: Callable[[str], str], verbose: bool = False) -> str:
    """What decides in full, what does not as counts (in full when verbose)."""
    lines = [f"{verdict(proof.answer)}: {reference} on {proof.node_class}", f"  image    {proof.image}"]
    link = proof.link
    glibc = f", glibc {proof.glibc}" if proof.glibc else ""
    lines.append(f"  objects  {link.objects} ELF files, {link.modules} Python modules{glibc}")
    lines.extend(f"  starts   {program}" for program in link.programs)
    if proof.driver.rules or proof.driver.answer != "proven":
        lines.append(f"  driver   {verdict(proof.driver.answer)}: {proof.driver.why}")
    lines.extend(_faults(proof, verbose))
    lines.extend(f"  note: {note}" for note in proof.notes)
    return "\n".join(lines)


def _faults(proof: Proof, verbose: bool) -> Iterator[str]:
    link = proof.link
    deciding = [fault for fault in link.unresolved if fault.weight != "optional"]
    yield from _grouped(deciding, None if verbose else _SHOWN)
    for version in link.versions:
        if version.weight != "optional" or verbose:
            yield from _version(version)
    demands: tuple[CpuNeed | DeviceCoverage, ...] = (*proof.cpu, *proof.devices)
    for need in demands:
        if need.answer != "proven" or verbose:
            yield f"  {need.object}"
            yield f"    {need.why}"
    yield from _assumed(link.assumed, None if verbose else _SHOWN)
    optional = [fault for fault in link.unresolved if fault.weight == "optional"]
    if verbose:
        yield from _grouped(optional, None)
    elif optional:
        counts = Counter(fault.needed for fault in optional)
        names = ", ".join(name for name, _ in counts.most_common(4))
        yield f"  optional: {len(optional)} needs of objects opened on demand only are not met ({names}{_more(counts)})"


def _more(counts: Mapping[str, int]) -> str:
    return f" and {len(counts) - 4} more" if len(counts) > 4 else ""


def _assumed(assumed: Sequence[Assumption], limit: int | None) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for assumption in assumed:
        groups.setdefault((assumption.object, assumption.why), []).append(assumption.needed)
    for (path, why), names in list(groups.items())[:limit]:
        yield f"  assumed: {path}"
        yield f"    needs {', '.join(names)}: {why}"
    if limit is not None and len(groups) > limit:
        yield f"  … and {len(groups) - limit} more assumptions (--verbose or --json)"


def _grouped(faults: Sequence[Unresolved], limit: int | None) -> Iterator[str]:
    """Faults by the object that asks: what it needs, then where that was looked for."""
    groups: dict[tuple[str, str], list[Unresolved]] = {}
    for fault in faults:
        groups.setdefault((fault.weight, fault.object), []).append(fault)
    for (weight, path), group in list(groups.items())[:limit]:
        yield f"  {weight}: {path}"
        if group[0].opened != path:
            yield f"    loaded because of {group[0].opened} ({group[0].role})"
        alike: dict[tuple[str, str | None, str], list[str]] = {}
        for fault in group:
            alike.setdefault((fault.why, fault.nearest, fault.fix), []).append(fault.needed)
        for (why, nearest, fix), names in alike.items():
            yield f"    needs {', '.join(names)}: {why}"
            if nearest:
                yield f"      nearest {nearest}"
            if fix:
                yield f"      fix: {fix}"
        if group[0].searched:
            places = [place.replace(f" of {path})", ")") for place in group[0].searched]
            more = f", and {len(places) - 4} more" if len(places) > 4 else ""
            yield f"    searched {', '.join(places[:4])}{more}"
    if limit is not None and len(groups) > limit:
        yield f"  … and {len(groups) - limit} more objects (--verbose or --json)"


def _version(version: SymbolVersion) -> Iterator[str]:
    yield f"  {version.weight}: {version.object}"
    yield f"    needs {version.version} of {version.library}: {version.why}"
