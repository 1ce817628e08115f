"""Looking up: exactly this key, else what suits it among the entries of the same kind and model."""

from __future__ import annotations

from operator import itemgetter

from builder.cache.judge import judge, sieve, verdict_of
from builder.cache.keys import missing_factors
from builder.cache.kinds import EngineKind
from builder.cache.store import EngineStore
from builder.cache.values import Difference, EngineKey, Entry, Lookup, Nearest
from builder.errors import BadInput

__all__ = ["look_up"]


def look_up(store: EngineStore, kind: EngineKind, wanted: EngineKey, *, nearest: int) -> Lookup:
    """The answer for one key. Reads documents of entries only, never an engine.

    An entry whose document is damaged or of another version is no answer; a hint names it when it has this very key,
    and `verify` names all of them.
    """
    missing = missing_factors(kind, wanted)
    unreadable: tuple[str, ...] = ()
    try:
        exact = None if missing else store.entry(wanted.digest, known=wanted)
    except BadInput as error:
        exact = None
        unreadable = (f"there is an entry of this very key that cannot be used: {error.what}: {error.why}",)
    if exact is not None:
        # equal keys, equal factors: only what is judged of itself can be said of them
        differs = judge(kind, wanted.factors, exact.key.factors) if kind.of_itself else ()
        verdict = verdict_of(differs) if differs else "hit"
        if verdict in ("hit", "usable"):
            store.touch(exact)
            return Lookup(verdict=verdict, wanted=wanted, entry=exact, differs=differs)
    if wanted.model is None:
        return Lookup(
            verdict="unknown", wanted=wanted, missing=missing, hints=("name the model: its digest, or its files",)
        )
    others = store.entries_of(wanted.kind, wanted.model)
    while (best := _best(kind, wanted, others)) is not None:
        entry, differs = best
        there = _readable(store, entry)
        if there is None:
            others = [one for one in others if one.digest != entry.digest]
            continue
        if verdict_of(differs) != "unknown":
            store.touch(there)
            return Lookup(verdict=verdict_of(differs), wanted=wanted, entry=there, differs=differs)
        break
    near = _nearest(kind, wanted, others, nearest)
    if best is not None:
        entry, differs = best
        return Lookup(
            verdict="unknown",
            wanted=wanted,
            entry=entry,
            differs=differs,
            nearest=near,
            missing=_open(missing, differs),
            hints=unreadable,
        )
    return Lookup(
        verdict="miss",
        wanted=wanted,
        differs=near[0].differs if near else (),
        nearest=near,
        missing=missing,
        failure=None if missing else store.failure(wanted.digest),
        hints=unreadable or _hints(others),
    )


def _readable(store: EngineStore, entry: Entry) -> Entry | None:
    """The entry as it is now; None when it was removed or damaged since it was read."""
    try:
        return store.entry(entry.digest)
    except BadInput:
        return None


def _open(missing: tuple[str, ...], differs: tuple[Difference, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*missing, *(one.name for one in differs if one.undecided and one.wanted is None)]))


def _best(kind: EngineKind, wanted: EngineKey, others: list[Entry]) -> tuple[Entry, tuple[Difference, ...]] | None:
    """The entry that suits best: a hit, else usable with the fewest differences, else one that may fit."""
    may_suit = sieve(kind, wanted.factors)
    found = [(one, judge(kind, wanted.factors, one.key.factors)) for one in others if may_suit(one.key.factors)]
    ranked = [
        (("hit", "usable", "unknown").index(verdict), len(differs), one.digest.hex, one, differs)
        for one, differs in found
        if (verdict := verdict_of(differs)) != "miss"
    ]
    if not ranked:
        return None
    _, _, _, entry, differs = min(ranked, key=itemgetter(0, 1, 2))
    return entry, differs


def _nearest(kind: EngineKind, wanted: EngineKey, others: list[Entry], count: int) -> tuple[Nearest, ...]:
    """The closest entries: fewest blocking differences, then fewest at all."""
    if count <= 0:
        return ()
    want = wanted.factors.items()
    close = sorted(others, key=lambda one: (len(want ^ one.key.factors.items()), one.digest.hex))[: count * 2]
    judged = [Nearest(entry=one, differs=judge(kind, wanted.factors, one.key.factors)) for one in close]
    judged.sort(key=lambda one: (sum(item.blocks for item in one.differs), len(one.differs), one.entry.digest.hex))
    return tuple(judged[:count])


def _hints(others: list[Entry]) -> tuple[str, ...]:
    return () if others else ("nothing is kept for this kind and model; builder cache list shows what there is",)
