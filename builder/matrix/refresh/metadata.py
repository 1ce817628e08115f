"""METADATA of a wheel (core metadata, Requires-Dist): torch_xla's libtpu and jax."""

from __future__ import annotations

from collections.abc import Mapping
from email.parser import HeaderParser

from packaging.requirements import InvalidRequirement, Requirement

from builder.errors import BadInput
from builder.matrix.schema import Cell

__all__ = ["torch_xla_rows"]


def torch_xla_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """The set of one torch_xla release: torch of the same minor by convention, libtpu of its extra `tpu`."""
    message = HeaderParser().parsestr(text)
    name, version = message.get("Name"), message.get("Version")
    if name is None or version is None or name.replace("_", "-").lower() != "torch-xla":
        raise BadInput("not the METADATA of torch_xla", why=f"Name {name}, Version {version}")
    packages = {"torch-xla": version, "torch": f"{'.'.join(version.split('.')[:2])}.*"}
    pallas = ""
    for line in message.get_all("Requires-Dist", []):
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise BadInput(f"Requires-Dist {line!r}", why=str(error)) from error
        extra = str(requirement.marker or "")
        exact = next((item.version for item in requirement.specifier if item.operator == "=="), "")
        if requirement.name in ("libtpu", "libtpu-nightly") and '"tpu"' in extra and exact:
            packages[requirement.name] = exact
        if requirement.name == "jax" and '"pallas"' in extra:
            pallas = exact
    cells: dict[str, Cell] = {
        "set": f"torch-xla-{version}",
        "packages": packages,
        "index": "pytorch",
        "variant": "cpu",
    }
    if pallas:
        cells["jax_for_pallas"] = pallas
    return (cells,)
