"""The engine cache: compiled artefacts keyed by what makes them valid, explained when they miss.

from pathlib import Path
from builder.cache import EngineCache, engine_key, engine_kind

cache = EngineCache.of_user()
key = engine_key(engine_kind("tensorrt"), model=digest, properties={"tensorrt": "10.9.0", ...}, node=node)
answer = cache.lookup(key)
if answer.entry is not None and answer.verdict in ("hit", "usable"):
    cache.restore(answer.entry, Path("model.plan"))
"""

from builder.cache.cache import EngineCache, TargetInUse
from builder.cache.keys import engine_key
from builder.cache.kinds import EngineKind, engine_kind, kind_names
from builder.cache.values import Difference, EngineKey, Entry, Failure, Lookup, Nearest

__all__ = [
    "Difference",
    "EngineCache",
    "EngineKey",
    "EngineKind",
    "Entry",
    "Failure",
    "Lookup",
    "Nearest",
    "TargetInUse",
    "engine_key",
    "engine_kind",
    "kind_names",
]
