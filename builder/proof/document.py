"""A proof as the JSON document of `builder prove`, and as text with the shortest evidence that convinces."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from builder.proof.values import CpuNeed, DeviceCoverage, Proof, SymbolVersion, Unresolved

__all__ = ["SCHEMA", "proof_document", "proof_text"]

SCHEMA = "builder/prove/1"
_SHOWN = 8


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
    for fault in deciding[: None if verbose else _SHOWN]:
        yield from _unresolved(fault)
    if len(deciding) > _SHOWN and not verbose:
        yield f"  … and {len(deciding) - _SHOWN} more (--verbose or --json)"
    for version in link.versions:
        if version.weight != "optional" or verbose:
            yield from _version(version)
    demands: tuple[CpuNeed | DeviceCoverage, ...] = (*proof.cpu, *proof.devices)
    for need in demands:
        if need.answer != "proven" or verbose:
            yield f"  {need.object}"
            yield f"    {need.why}"
    for assumption in link.assumed[: None if verbose else _SHOWN]:
        yield f"  assumed  {assumption.object}"
        yield f"    needs {assumption.needed}, taken from {assumption.provider}: {assumption.why}"
    optional = [fault for fault in link.unresolved if fault.weight == "optional"]
    if verbose:
        for fault in optional:
            yield from _unresolved(fault)
    elif optional:
        counts = Counter(fault.needed for fault in optional)
        names = ", ".join(name for name, _ in counts.most_common(4))
        yield f"  optional: {len(optional)} needs of objects opened on demand only are not met ({names}{_more(counts)})"


def _more(counts: Mapping[str, int]) -> str:
    return f" and {len(counts) - 4} more" if len(counts) > 4 else ""


def _unresolved(fault: Unresolved) -> Iterator[str]:
    yield f"  {fault.weight}: {fault.object}"
    yield f"    needs {fault.needed}: {fault.why}"
    if fault.opened != fault.object:
        yield f"    loaded because of {fault.opened} ({fault.role})"
    if fault.searched:
        shown = fault.searched[:4]
        more = f", and {len(fault.searched) - 4} more" if len(fault.searched) > 4 else ""
        yield f"    searched {', '.join(shown)}{more}"
    if fault.nearest:
        yield f"    nearest  {fault.nearest}"
    if fault.fix:
        yield f"    fix      {fault.fix}"


def _version(version: SymbolVersion) -> Iterator[str]:
    yield f"  {version.weight}: {version.object}"
    yield f"    needs {version.version} of {version.library}: {version.why}"
