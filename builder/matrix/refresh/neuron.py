"""aws-neuron-sdk n2-manifest.json: every package of every SDK release."""

from __future__ import annotations

import json
from collections.abc import Mapping

from builder.errors import BadInput
from builder.matrix.schema import Cell
from builder.matrix.versions import sort_key

__all__ = ["release_rows"]

_NAMES = frozenset(
    {
        "aws-neuronx-collectives",
        "aws-neuronx-oci-hook",
        "aws-neuronx-runtime-lib",
        "aws-neuronx-tools",
        "jax-neuronx",
        "libneuronxla",
        "libtorch-neuronx-lite",
        "neuronx-cc",
        "neuronx-distributed",
        "neuronx-distributed-inference",
        "neuronx-distributed-training",
        "nki",
        "torch-neuronx",
        "torch-xla",
        "vllm-neuron",
    }
)
_ALIASES = {"neuronx_distributed": "neuronx-distributed", "libtorch_neuronx_lite": "libtorch-neuronx-lite"}


def release_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """The packages of each release; a package in several versions has them as alternatives, oldest first."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput("the manifest is not JSON", why=str(error), fix="is it n2-manifest.json, whole?") from error
    releases = data.get("neuron_releases") if isinstance(data, dict) else None
    if not isinstance(releases, list):
        raise BadInput("the manifest has no list 'neuron_releases'", fix="is it n2-manifest.json?")
    rows: list[Mapping[str, Cell]] = []
    for release in releases:
        versions: dict[str, set[str]] = {}
        drivers: set[str] = set()
        try:
            for package in release["packages"]:
                if package.get("supported_instances") == ["inf1"]:
                    continue  # the first generation has packages of its own
                name = _ALIASES.get(package["name"], package["name"].replace("_", "-"))
                if name in _NAMES:
                    versions.setdefault(name, set()).add(package["version"])
                elif name == "aws-neuronx-dkms":
                    drivers.add(package["version"])
            toolkit = str(release["neuron_version"])
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(
                f"a release without {error}",
                why="each has neuron_version, and packages with name and version",
                fix="is it n2-manifest.json? mend the generator when its form has changed",
            ) from error
        members = {
            name: " | ".join(f"=={version}" for version in sorted(found, key=sort_key))
            for name, found in sorted(versions.items())
        }
        cells: dict[str, Cell] = {"toolkit": toolkit, "members": members}
        if drivers:
            cells["dkms_driver"] = max(drivers, key=sort_key)
        rows.append(cells)
    return tuple(rows)
