"""From what a project or table names as base to a locked one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from builder.base.debian import SUITES, lock_debian, parse_debian
from builder.base.oci import base_facts, kept_facts, lock_oci
from builder.base.values import BaseDistribution, LockedBase
from builder.errors import BadInput, OutsideFailed, did_you_mean
from builder.events import Reporter
from builder.names import Arch, LayoutRef, Reference, parse_ref
from builder.registry.values import Repository
from builder.store import Store

__all__ = ["OpenRepository", "base_distributions", "resolve_base"]

OpenRepository = Callable[[Reference], Repository]
"""Opens the repository that a reference lies in."""


def resolve_base(
    reference: str,
    *,
    python: str,
    arch: Arch,
    store: Store,
    reporter: Reporter,
    offline: bool,
    environ: Mapping[str, str],
    open_repository: OpenRepository,
) -> LockedBase:
    """Lock a base: `debian:<suite>[@snapshot]` (built in), or an image of a registry or layout.

    Looks at the network unless `offline`; then only what this store has seen before can be locked.
    """
    debian = parse_debian(reference)
    if debian is not None:
        return lock_debian(
            debian, python=python, arch=arch, store=store, reporter=reporter, offline=offline, environ=environ
        )
    if "/" not in reference and not reference.startswith("oci:"):
        built_in = [f"debian:{suite}" for suite in SUITES]
        raise BadInput(
            f"unknown base {reference!r}",
            why=f"built in are {', '.join(built_in)}; any other base is an image reference with its host",
            fix=did_you_mean(reference, built_in),
        )
    ref = parse_ref(reference)
    key = f"{ref} {python} {arch}"
    if offline and not isinstance(ref, LayoutRef):
        kept = store.derived("base-lock", key)
        if kept is None:
            raise OutsideFailed(
                f"base {ref} is not known yet",
                why="offline, and it was never locked with this store",
                fix="run once without --offline, or use a base in an OCI layout (oci:DIR:tag)",
            )
        return LockedBase.from_json(kept)
    if ref.tag is None and ref.digest is None:
        raise BadInput(
            f"base {ref} names no tag and no digest",
            why="there is no default tag",
            fix=f"write it, for example {ref}:1.0",
        )
    locked = lock_oci(ref, open_repository(ref), python=python, arch=arch, store=store, reporter=reporter)
    store.put_derived("base-lock", key, locked.to_json())
    return locked


def base_distributions(
    base: LockedBase, *, store: Store, reporter: Reporter, offline: bool, open_repository: OpenRepository
) -> tuple[BaseDistribution, ...]:
    """The Python distributions that a locked base brings along; the built-in base has none.

    Read from the base's layers once for a store; `OutsideFailed` when they are out of reach.
    """
    if parse_debian(base.reference) is not None:
        return ()
    facts = kept_facts(base.digest, store)
    if facts is None:
        ref = parse_ref(base.reference)
        if offline and not isinstance(ref, LayoutRef):
            raise OutsideFailed(
                f"base {ref} was not looked into yet",
                why="offline, and this store does not know which packages it holds",
                fix="run once without --offline, or use a base in an OCI layout (oci:DIR:tag)",
            )
        repository = open_repository(ref)
        manifest = repository.manifest(base.digest)
        if manifest is None:
            raise OutsideFailed(
                f"base {ref} is gone",
                why=f"its registry no longer has {base.digest}, which the lock names",
                fix="lock again with --upgrade, which takes what the tag names now",
            )
        facts = base_facts(ref, repository, manifest, store=store, reporter=reporter)
    return facts.distributions
