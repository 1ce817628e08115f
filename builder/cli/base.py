"""`builder base`: is an image fit to be a base?"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.console import Console, project_option, shared_options
from builder.cli.registry_options import existing_file, open_reference, plain_http_option

if TYPE_CHECKING:
    from builder.lock.values import Lock
    from builder.names import Reference
    from builder.registry.values import Repository

__all__ = ["command"]


@click.group("base")
def command() -> None:
    """Base images: is one fit for a backend and a lock, and is it still what was locked?"""


@command.command("check")
@click.argument("image", required=False)
@click.option("--backend", required=True, help="Backend the base is for.")
@existing_file("--lock", help="Lock whose packages IMAGE's are held against.")
@click.option("--arch", help="Machine of IMAGE: x86_64 or aarch64 [default: the lock's, else x86_64].")
@plain_http_option
@project_option
@shared_options
def _check(console: Console, /, image: str | None, backend: str, **options: Any) -> int:
    """Tell whether a base's own packages fit together and stay what they are.

    IMAGE is a registry reference or a layout (oci:DIR:TAG); without one it is the base of the project's lock, held
    against that lock. Refused are a base whose framework lacks what it requires, one with another backend's packages,
    and one whose framework the lock has in another version. What else does not fit together is a warning. The layers
    are read; nothing runs.
    """
    from builder.audit.base import judge_base
    from builder.base.debian import parse_debian
    from builder.base.oci import BaseFacts, base_facts, platform_manifest
    from builder.lock.policy import load_package_policy
    from builder.names import parse_arch, parse_backend, parse_ref
    from builder.store import default_store

    backend = parse_backend(backend)
    lock = _lock(backend, image, options["lock"], options["project"])
    arch = parse_arch(options["arch"] or (lock.arch if lock else "x86_64"))
    name = image or (lock.base.reference if lock else "")
    digest = str(lock.base.digest) if lock and not image else None
    facts = BaseFacts(pythons={}, glibc=None, musl=False)
    if parse_debian(name) is None:
        reference = parse_ref(name if digest is None else f"{name.partition('@')[0]}@{digest}")
        repository = open_reference(console, reference, plain_http=options["plain_http"])
        manifest = platform_manifest(reference, repository, arch)
        digest = str(manifest.digest)
        facts = base_facts(reference, repository, manifest, store=default_store(os.environ), reporter=console)
    findings = judge_base(
        facts.distributions,
        backend=backend,
        python=lock.python if lock else max(facts.pythons.values(), default="3.11"),
        arch=arch,
        policy=load_package_policy(),
        locked={item.name: item.version for item in lock.packages} if lock else {},
    )
    refused = any(found.severity == "block" for found in findings)
    document: dict[str, Any] = {
        "schema": "builder/base-check/1",
        "verdict": "refused" if refused else "ok",
        "backend": backend,
        "base": {"reference": name, "digest": digest, "pythons": dict(facts.pythons), "glibc": facts.glibc},
        "distributions": [
            {"name": one.name, "version": one.version, "site": one.site, "python": one.python}
            for one in facts.distributions
        ],
        "findings": [
            {
                "rule": found.rule,
                "severity": found.severity,
                "package": found.package,
                "site": found.site,
                "why": found.why,
                "fix": found.fix,
            }
            for found in findings
        ],
    }
    console.document(document, lambda: _text(document, console))
    return 1 if refused else 0


@command.command("drift")
@click.option("--backend", required=True, help="Backend whose lock holds the base.")
@existing_file("--lock", help="The lock [default: the project's].")
@click.option(
    "--node-class",
    "node_classes",
    multiple=True,
    metavar="N",
    help="Class that the new base is held against; may be repeated [default: the project's for the backend].",
)
@plain_http_option
@project_option
@shared_options
def _drift(console: Console, /, backend: str, node_classes: tuple[str, ...], **options: Any) -> int:
    """Tell whether a base's reference still names what the lock holds.

    Asks the registry, or Debian's archive for a built-in base; nothing is changed, and builds go on with the locked
    base whatever the answer. Exit code 1 when another base is published under the reference: what differs is listed,
    and whether the node classes meet what it asks of their driver.
    """
    from builder.base.debian import parse_debian
    from builder.base.drift import judge_nodes, oci_drift, package_drift
    from builder.base.resolve import resolve_base
    from builder.names import parse_backend, parse_ref
    from builder.node import node_class
    from builder.project import find_project, load_project
    from builder.store import default_store

    backend = parse_backend(backend)
    lock = _lock(backend, None, options["lock"], options["project"])
    assert lock is not None  # noqa: S101 - one is read when no image is named
    names = node_classes
    if not names and options["lock"] is None:
        names = load_project(find_project(options["project"] or Path())).options(backend).node_classes
    store = default_store(os.environ)

    def opened(reference: Reference) -> Repository:
        return open_reference(console, reference, plain_http=options["plain_http"])

    if parse_debian(lock.base.reference) is not None:
        now = resolve_base(
            lock.base.reference,
            python=lock.python,
            arch=lock.arch,
            store=store,
            reporter=console,
            offline=console.offline,
            environ=os.environ,
            open_repository=opened,
        )
        drift = package_drift(lock.base, now)
    else:
        reference = parse_ref(lock.base.reference)
        drift = oci_drift(lock.base, reference, opened(reference), arch=lock.arch, store=store)
    nodes = judge_nodes(drift, [node_class(name) for name in names]) if drift.moved else ()
    document: dict[str, Any] = {
        "schema": "builder/base-drift/1",
        "verdict": "drifted" if drift.moved else "same",
        "backend": backend,
        "base": {"reference": drift.reference, "locked": str(drift.locked), "now": str(drift.now)},
        "compared": drift.compared,
        "kept": drift.kept,
        "differences": [asdict(item) for item in drift.differences],
        "nodes": [asdict(item) for item in nodes],
    }
    console.document(document, lambda: _drift_text(document, console))
    return 1 if drift.moved else 0


def _drift_text(document: dict[str, Any], console: Console) -> str:
    base, lines = document["base"], []
    for item in document["differences"]:
        lines.append(f"{item['kind']} {item['name']}")
        lines += [f"  {side}: {item[side] if item[side] is not None else '(none)'}" for side in ("locked", "now")]
    if not document["compared"]:
        lines.append("what differs is not known: the locked image is neither in the registry nor in the store")
    for node in document["nodes"]:
        lines.append(f"node class {node['node_class']}: {console.verdict(node['verdict'])}: {node['why']}")
        lines += [f"  fix: {node['fix']}"] if node["fix"] else []
    if document["verdict"] == "same":
        return f"{base['reference']} is still {base['locked']}: {console.verdict('same')}"
    lines.append(f"{base['reference']}: {console.verdict('drifted')}, from {base['locked']} to {base['now']}")
    if document["kept"]:
        lines.append("builds go on with the locked base")
    else:
        lines.append(
            "the registry has the locked base no longer: builds go on with what this machine's store keeps of it"
        )
    lines.append(f"builder lock --backend {document['backend']} --upgrade takes the new one")
    return "\n".join(lines)


def _lock(backend: str, image: str | None, file: Path | None, project: Path | None) -> Lock | None:
    """The lock named, else the project's; None when an image stands alone."""
    from builder.errors import BadInput
    from builder.lock.files import lock_path, read_lock
    from builder.project import find_project

    if file is None:
        if image is not None:
            return None
        file = lock_path(find_project(project or Path()).parent, backend)
    lock = read_lock(file)
    if lock.backend != backend:
        raise BadInput(f"{file} is a lock for {lock.backend}, not for {backend}", fix="name the lock of that backend")
    return lock


def _text(document: dict[str, Any], console: Console) -> str:
    base, lines = document["base"], []
    for found in document["findings"]:
        lines += [
            f"{console.verdict(found['severity'])}: {found['why']}",
            f"  rule:  {found['rule']}",
            f"  where: {found['site']}",
            f"  fix:   {found['fix']}",
        ]
    count = len(document["distributions"])
    lines.append(
        f"{base['reference']} for {document['backend']}: {console.verdict(document['verdict'])}; "
        f"{count} Python distribution{'' if count == 1 else 's'}"
    )
    return "\n".join(lines)
