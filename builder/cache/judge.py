"""Whether an engine suits what is wanted, property by property. Pure: nothing is opened or fetched for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from builder.cache.kinds import EngineKind, Property
from builder.cache.rules import ASKS_THE_MACHINE, OF_ITSELF, RULES, Case
from builder.cache.values import Difference, Meaning, Verdict

__all__ = ["judge", "sieve", "verdict_of"]


def judge(kind: EngineKind, want: Mapping[str, str], have: Mapping[str, str]) -> tuple[Difference, ...]:
    """Every property by which an engine with the factors `have` is not exactly what is wanted, what decides first.

    A factor that this version has no property for was keyed by a newer one: whether it matters is not known.
    """
    found = [one for item in kind.properties.values() if (one := _difference(item, want, have)) is not None]
    found += [
        Difference(
            name=name,
            wanted=None,
            found=have[name],
            hold="hard",
            meaning="unknown",
            why="a newer version of this tool keys it, and this one does not know it",
        )
        for name in sorted(have.keys() - kind.properties.keys())
    ]
    return tuple(sorted(found, key=lambda one: (not one.blocks, not one.undecided)))


def sieve(kind: EngineKind, want: Mapping[str, str]) -> Callable[[Mapping[str, str]], bool]:
    """Tells of many engines which may suit, without saying why the others do not: most differ in what must be equal."""
    equal = {one.name: want[one.name] for one in kind.equal if one.name in want}.items()
    names = {name for name, _ in equal}

    def may_suit(have: Mapping[str, str]) -> bool:
        if equal <= have.items():
            return not any(_blocks(one, want, have) for one in kind.loose)
        # an entry that leaves something out is older than the row, or open: that is for the judge
        return not names <= have.keys() and not any(_blocks(one, want, have) for one in (*kind.equal, *kind.loose))

    return may_suit


def _blocks(item: Property, want: Mapping[str, str], have: Mapping[str, str]) -> bool:
    wanted, found = want.get(item.name, item.default), have.get(item.name, item.default)
    if wanted == found or wanted is None or found is None:
        return False
    case = Case(wanted=wanted, found=found, want=want, have=have, by=item.by, limits=item.limits)
    return RULES[item.rule](case) == "differs"


def _difference(item: Property, want: Mapping[str, str], have: Mapping[str, str]) -> Difference | None:
    wanted = want.get(item.name, item.default)
    found = wanted if item.rule in OF_ITSELF else have.get(item.name, item.default)
    if wanted is None or found is None:
        if wanted is found and (not item.decides or item.group == "format"):
            return None
        if found is not None and item.group == "format" and not _asks(item, found):
            return None
        side = "neither side" if wanted is found else "the machine or the build" if wanted is None else "the engine"
        return _told(item, wanted, found, "unknown", f"{side} does not say it; {item.why}")
    if wanted == found and item.rule not in OF_ITSELF:
        return None
    case = Case(wanted=wanted, found=found, want=want, have=have, by=item.by, limits=item.limits)
    meaning = RULES[item.rule](case)
    return None if meaning is None else _told(item, wanted, found, meaning, item.why)


def _asks(item: Property, found: str) -> bool:
    """Whether a header states a need that the machine must be known to satisfy."""
    return item.rule in ASKS_THE_MACHINE and not (item.rule == "bits-within" and int(found, 0) == 0)


def _told(item: Property, wanted: str | None, found: str | None, meaning: Meaning, why: str) -> Difference:
    usable = item.hold == "soft" or meaning == "costs"
    return Difference(
        name=item.name,
        wanted=wanted,
        found=found,
        hold=item.hold,
        meaning=meaning,
        why=why,
        cost=item.cost if usable else "",
        source=item.source,
    )


def verdict_of(differs: Iterable[Difference]) -> Verdict:
    """miss when anything blocks, unknown when something that decides is not known, usable when anything differs."""
    found = tuple(differs)
    if any(one.blocks for one in found):
        return "miss"
    if any(one.undecided for one in found):
        return "unknown"
    return "usable" if found else "hit"
