"""`builder lock`: the hashed lock of one backend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.console import Console, project_option, shared_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.lock.policy import PackagePolicy
    from builder.pipeline.values import LockOutcome

__all__ = ["command"]


@click.command("lock")
@click.option("--backend", help="Backend to lock for, e.g. cuda.")
@click.option(
    "--diff",
    nargs=2,
    metavar="A B",
    help="Only tell where two locks part ways, and why; each a backend of the project or a lock file. 1 when they do.",
)
@click.option("--node-class", metavar="N", help="Node class the image is for; the stack is chosen to fit it.")
@click.option("--check", is_flag=True, help="Only tell whether the lock is fresh, without the network; 1 when stale.")
@click.option("--upgrade", is_flag=True, help="Forget the locked versions and the locked base and take the newest.")
@click.option("--engine", metavar="E", help="Resolver: uv or pip-tools (this machine's Python only) [default: uv].")
@click.option(
    "--exclude-newer", metavar="TIME", help="Leave out files uploaded later, e.g. 2026-11-30 or 2026-11-30T12:00:00Z."
)
@project_option
@shared_options
def command(console: Console, /, **options: Any) -> int:
    """Decide and write the hashed lock of one backend.

    Writes pylock.BACKEND.toml (PEP 751) and requirements.BACKEND.txt beside the project file. A fresh lock stays byte
    for byte, a stale one keeps the versions that still fit. A lock that holds another backend's packages is refused
    with the chain that brought them in and what to write instead; nothing is written then.
    """
    if options["diff"]:
        return _diff(console, *options["diff"], project=options["project"])
    if options["backend"] is None:
        raise click.UsageError("Missing option '--backend'.")
    from builder.errors import BadInput
    from builder.lock.policy import load_package_policy
    from builder.lock.values import parse_moment
    from builder.names import parse_backend
    from builder.node import node_class
    from builder.pipeline.lock import lock_project
    from builder.pipeline.values import Work
    from builder.project import find_project, load_project
    from builder.store import default_store

    if options["check"] and options["upgrade"]:
        raise BadInput("--check and --upgrade exclude each other", why="--check writes nothing", fix="leave one out")
    backend = parse_backend(options["backend"])
    project = load_project(find_project(options["project"] or Path()))
    work = Work(store=default_store(os.environ), environ=os.environ, reporter=console, offline=console.offline)
    outcome = lock_project(
        project,
        backend,
        work=work,
        node_class=node_class(options["node_class"]) if options["node_class"] else None,
        engine=options["engine"],
        check=options["check"],
        upgrade=options["upgrade"],
        exclude_newer=parse_moment(options["exclude_newer"]) if options["exclude_newer"] else None,
    )
    document = _document(outcome)
    console.document(document, lambda: _text(document, outcome, load_package_policy(), console.verdict))
    return 0 if document["verdict"] in ("locked", "fresh") else 1


def _diff(console: Console, first: str, second: str, *, project: Path | None) -> int:
    """The same package in another version, with what makes it so; two builds of one release are no difference."""
    from builder.lock.compare import compare
    from builder.lock.files import lock_path, read_lock
    from builder.names import parse_backend
    from builder.project import find_project

    def path(name: str) -> Path:
        if Path(name).suffix == ".toml" or "/" in name:
            return Path(name)
        return lock_path(find_project(project or Path()).parent, parse_backend(name))

    locks = [read_lock(path(name)) for name in (first, second)]
    found = compare(*locks)
    apart = [one for one in found if not one.label_only]
    document = {
        "schema": "builder/lock-diff/1",
        "verdict": "diverges" if apart else "same",
        "backends": [lock.backend for lock in locks],
        "shared": len({item.name for item in locks[0].packages} & {item.name for item in locks[1].packages}),
        "packages": [
            {
                "name": one.name,
                "versions": [one.first, one.second],
                "label_only": one.label_only,
                "why": list(one.why),
            }
            for one in found
        ],
    }
    lines = []
    for one in found:
        lines.append(f"{one.name}: {one.first} and {one.second}" + (" (another build)" if one.label_only else ""))
        lines += [f"    {why}" for why in one.why]
    lines.append(f"{document['verdict']}: {len(apart)} of {document['shared']} packages in both have other versions")
    console.document(document, lambda: "\n".join(lines))
    return 1 if apart else 0


def _verdict(outcome: LockOutcome) -> str:
    if outcome.blocked:
        return "refused"
    if outcome.stale:
        return "stale"
    return "locked" if outcome.written else "fresh"


def _document(outcome: LockOutcome) -> dict[str, Any]:
    lock = outcome.lock
    return {
        "schema": "builder/lock/1",
        "verdict": _verdict(outcome),
        "backend": outcome.backend,
        "path": str(outcome.path),
        "target": {"python": lock.python, "arch": lock.arch, "glibc": lock.glibc},
        "toolkit": lock.toolkit,
        "frameworks": dict(lock.frameworks),
        "base": {"reference": lock.base.reference, "digest": str(lock.base.digest)},
        "engine": lock.engine,
        "exclude_newer": lock.exclude_newer,
        "packages": [
            {
                "name": item.name,
                "version": item.version,
                "file": item.file,
                "sha256": item.sha256.hex,
                "index": item.index,
                "size": item.size,
                "requires": list(item.requires),
            }
            for item in lock.packages
        ],
        "blocked": [
            {
                "package": item.package,
                "version": item.version,
                "backend": item.backend,
                "chain": list(item.chain),
                "why": item.why,
                "fix": item.fix,
                "source": item.source,
                "size": item.size,
                "installed": item.installed,
            }
            for item in outcome.blocked
        ],
        "stale": list(outcome.stale),
        "unknown": list(lock.unknown_allowed),
    }


def _text(
    document: dict[str, Any],
    outcome: LockOutcome,
    policy: PackagePolicy,
    paint: Callable[[str], str],
) -> str:
    from builder.lock.trap import summary

    lock, blocked, verdict = outcome.lock, outcome.blocked, document["verdict"]
    lines: list[str] = []
    if blocked:
        lines.append(summary(blocked, lock, policy))
    lines += [f"stale: {reason}" for reason in outcome.stale]
    if verdict == "refused":
        count = f"{len(blocked)} of {len(lock.packages)} packages belong to another backend"
        lines.append(f"{paint('refused')}: {count}" + ("" if outcome.stale else f"; {outcome.backend} is not locked"))
    elif verdict == "stale":
        lines.append(f"{paint('stale')}: renew it with builder lock --backend {outcome.backend}")
    else:
        count = f"{len(lock.packages)} package{'' if len(lock.packages) == 1 else 's'}"
        known = [item.size for item in lock.packages if item.size is not None]
        size = f"{'' if len(known) == len(lock.packages) else 'at least '}{sum(known) / 1e6:.1f} MB"
        lines += [
            f"{count}, {size}, on {lock.base.reference} with Python {lock.python} ({lock.arch})",
            f"{paint(verdict)}: {outcome.path}",
        ]
    return "\n".join(lines)
