"""The vendor's base image for a stack, where its wheels need libraries that only that image has."""

from __future__ import annotations

from collections.abc import Mapping

from builder.matrix.load import Backend
from builder.matrix.tables import Row
from builder.matrix.values import Reason
from builder.matrix.versions import sort_key, within

__all__ = ["choose_base"]


def choose_base(
    backend: Backend, *, toolkit: str | None, python: str, target: str | None, packages: Mapping[str, str]
) -> tuple[str | None, Reason | None]:
    """Reference of the base image and why; None with a reason when none is known, None alone when none is needed."""
    if not backend.spec.vendor_base:
        return None, None
    chip = _chip(backend, target)
    fitting = [
        row
        for row in backend.rows("base")
        if toolkit is not None
        and within(toolkit, row.text("toolkit") or "")
        and python in (row.texts("python") or ())
        and (row.text("chip") is None or row.text("chip") == chip)
        and (target is None or target in (row.texts("devices") or (target,)))
        and _holds(row, packages)
    ]
    if not fitting:
        title = backend.spec.toolkit
        why = f"no image of the vendor is known with {title} {toolkit or '(not known)'}, Python {python}"
        why += f", chip {chip}" if chip else ""
        return None, Reason(cell="base", why=why, source=backend.spec.source)
    row = max(
        fitting, key=lambda row: (sort_key(row.text("toolkit") or ""), "inference" in (row.text("reference") or ""))
    )
    system = next(iter(row.texts("os") or ("",)))
    fields = {"toolkit": (row.text("toolkit") or "").lower(), "chip": chip or "", "os": system, "python": python}
    reference = row.text("reference") or ""
    for name, value in fields.items():
        reference = reference.replace(f"{{{name}}}", value)
    why = f"the vendor's image with {backend.spec.toolkit} {row.text('toolkit')} and Python {python}"
    if row.text("chip") and target is None:
        why += f" for chip {chip} (no node class names another)"
    return reference, Reason(cell="base", why=why, source=row.source.text)


def _chip(backend: Backend, target: str | None) -> str | None:
    if target is None:
        return backend.spec.default_chip
    for row in backend.rows("device"):
        if row.text("target") == target:
            return row.text("image_chip")
    return None


def _holds(row: Row, packages: Mapping[str, str]) -> bool:
    """Whether an image that is made for one framework version is made for this one."""
    framework = row.text("framework")
    if framework is None:
        return True
    name, _, version = framework.rpartition(" ")
    cell = packages.get({"pytorch": "torch", "jax": "jax-neuronx"}.get(name.lower(), name.lower()), "")
    return cell == version or cell.startswith(f"{version}.") or within(version, cell)
