"""`builder doctor`: what this machine can do."""

from __future__ import annotations

import os
from pathlib import Path

import click

from builder.cli.console import Console, project_option, shared_options

__all__ = ["command"]


@click.command("doctor", short_help="What this machine can do, with the mend for what it cannot.")
@project_option
@shared_options
def command(console: Console, project: Path | None) -> int:
    """What this machine can do, with the mend for what it cannot.

    Looks at Python, uv, the store and its disk, the built-in runner, the configured indexes, the Debian mirror, the
    Docker Engine, registry logins and devices. Exit 0 when the built-in engine has all it needs. With --offline no
    site is asked.
    """
    from builder.doctor import examine, ready
    from builder.doctor.probe import gather
    from builder.store import default_store

    facts = gather(
        os.environ, store=default_store(os.environ), registries=_registries(project), offline=console.offline
    )
    items = examine(facts)
    document = {
        "schema": "builder/doctor/1",
        "verdict": "ok" if ready(items) else "missing",
        "items": [
            {
                "name": item.name,
                "verdict": item.verdict,
                "detail": item.detail,
                "fix": item.fix,
                "needed": item.needed,
            }
            for item in items
        ],
    }

    def text() -> str:
        width = max(len(item.name) for item in items)
        lines = []
        for item in items:
            word = console.verdict(item.verdict) + " " * (7 - len(item.verdict))
            lines.append(f"{item.name:<{width}}  {word}  {item.detail}")
            if item.fix:
                lines.append(f"{'':<{width}}           {console.paint(item.fix, 'dim')}")
        lines.append("")
        lines.append(
            "the built-in engine has all it needs"
            if ready(items)
            else "the built-in engine misses: "
            + ", ".join(item.name for item in items if item.needed and item.verdict == "missing")
        )
        return "\n".join(lines)

    console.document(document, text)
    return 0 if ready(items) else 1


def _registries(project: Path | None) -> tuple[str, ...]:
    """The registry of the project at hand; none where there is no project, which is no fault here."""
    from builder.errors import BadInput
    from builder.names import RegistryRef, parse_ref
    from builder.project import find_project, load_project

    try:
        path = find_project(project or Path())
    except BadInput:
        if project is not None:
            raise
        return ()
    registry = load_project(path).registry
    reference = parse_ref(registry) if registry else None
    return (reference.host,) if isinstance(reference, RegistryRef) else ()
