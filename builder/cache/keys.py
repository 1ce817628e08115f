"""Keys: what is known of a model, a build and a machine, as the factors of one engine kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from builder.cache.devices import DEVICE_VALUES
from builder.cache.forms import spell
from builder.cache.kinds import EngineKind
from builder.cache.values import MODEL, EngineKey
from builder.errors import BadInput, did_you_mean
from builder.names import Digest

if TYPE_CHECKING:
    from builder.node.values import NodeClass

__all__ = ["complete_key", "engine_key", "missing_factors"]


def engine_key(
    kind: EngineKind,
    *,
    model: Digest | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
    node: NodeClass | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> EngineKey:
    """The factors of one kind, spelled canonically. What is stated wins over what the node class says.

    Of `environment` only the variables that the kind names are read, whatever else it holds; one that is not set
    counts as empty. `BadInput` for a property the kind does not have, or a value that cannot be read.
    """
    unknown = [name for name in properties if name not in kind.properties]
    if unknown:
        name = unknown[0]
        raise BadInput(f"{kind.name} engines have no property {name!r}", fix=did_you_mean(name, kind.properties))
    if model is not None and MODEL in properties:
        raise BadInput("the model is given twice", fix="keep one of them")
    stated = dict(properties)
    if model is not None:
        stated[MODEL] = str(model)
    factors: dict[str, str] = {}
    for one in kind.properties.values():
        value: str | None = stated.get(one.name)
        if value is None and one.group == "env":
            value = environment.get(one.name)
        if value is None and one.node is not None and node is not None:
            value = DEVICE_VALUES[one.node](node)
        if value is None:
            value = one.default
        elif value.strip() or one.group == "env":
            value = spell(one.form, one.name, value, one.ignore) if value.strip() else ""
        else:
            raise BadInput(f"{one.name} is empty", fix="leave it out when it is not known")
        if value is not None:
            factors[one.name] = value
    return EngineKey(kind.name, MappingProxyType(factors))


def missing_factors(kind: EngineKind, key: EngineKey) -> tuple[str, ...]:
    """Properties that decide, and that the key does not state."""
    return tuple(name for name in kind.required if name not in key.factors)


def complete_key(kind: EngineKind, key: EngineKey) -> EngineKey:
    """The key itself when everything that decides is stated; `BadInput` naming what is not."""
    missing = missing_factors(kind, key)
    if missing:
        raise BadInput(
            f"the key of this {kind.name} engine is not complete",
            why=f"not stated: {', '.join(missing)}; an engine kept without them would be found where it is wrong",
            fix="state each as NAME=VALUE, or name a node class that knows it; builder cache key shows the properties",
        )
    return key
