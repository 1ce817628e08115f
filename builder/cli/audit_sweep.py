"""`builder audit --results`, and what joins its parts: `audit merge`, `audit push`, `audit pull`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from builder.cli.console import Console, shared_options
from builder.cli.registry_options import open_reference, plain_http_option
from builder.errors import BadInput, BuilderError
from builder.names import parse_ref

if TYPE_CHECKING:
    from builder.audit.exchange import Exchanged
    from builder.audit.results import Head, Tally
    from builder.audit.sweep import Question
    from builder.names import Reference
    from builder.registry.values import Repository
    from builder.store import Store

__all__ = ["LEVELS", "merge", "pull", "push", "sweep"]

LEVELS = ("warn", "carry", "block")
_SHOWN = 12


def sweep(
    console: Console,
    targets: tuple[str, ...],
    *,
    results: Path,
    shard: str,
    listed: Path | None,
    newest: bool,
    question: Question,
    store: Store,
    fail_on: str,
    jobs: int | None,
) -> int:
    """Audit every wheel of the targets' part, write its line, and say how many there are of each level."""
    from builder.audit.audit import load_rules
    from builder.audit.document import target_document
    from builder.audit.results import Head, line_of, open_results
    from builder.audit.shard import Shard
    from builder.audit.sources import each_source
    from builder.audit.sweep import Sweeper, in_order
    from builder.wheels.settings import read_index_settings
    from builder.wheels.transport import open_client

    part = Shard.parse(shard)
    if not targets and listed is None:
        raise BadInput("no target", fix="name wheels, folders, requirements or URLs, or a file of them with --targets")
    rules = load_rules()
    head = Head(backend=question.backend, policy=rules.version, question=question.digest(newest=newest), shard=part)
    settings = read_index_settings(os.environ)
    with open_client(settings, os.environ) as client, open_results(results, head) as file:
        sweeper = Sweeper(question, rules=rules, store=store, client=client, settings=settings, offline=console.offline)
        sources = each_source(
            _all_targets(targets, listed),
            shard=part,
            fit=question.fit,
            newest=newest,
            client=client,
            offline=console.offline,
        )
        with console.task(f"auditing part {part} for {question.backend}", unit="wheels") as advance:
            for source, outcome in in_order(sweeper.judge, file.remaining(sources), jobs=jobs):
                if isinstance(outcome, BuilderError):
                    console.note(f"{source.target}: {outcome.what}" + (f": {outcome.why}" if outcome.why else ""))
                    file.append(line_of(source, outcome))
                else:
                    file.append(line_of(source, target_document(outcome)))
                advance(1)
            file.finish()
    document = {
        "schema": "builder/audit-sweep/1",
        "verdict": file.tally.level,
        "backend": question.backend,
        "policy": head.policy,
        "shard": str(part),
        "results": str(results),
        "reused": file.reused,
        **file.tally.to_json(),
    }
    console.document(document, lambda: _summary(console, document, f" in part {part}" if part.count > 1 else ""))
    return _exit_code(file.tally, fail_on)


def _all_targets(targets: tuple[str, ...], listed: Path | None) -> Iterator[str]:
    from builder.audit.sources import target_lines

    yield from targets
    if listed is not None:
        yield from target_lines(Path("/dev/stdin") if str(listed) == "-" else listed)


def _exit_code(tally: Tally, fail_on: str) -> int:
    """1 when the level reaches `fail_on`; else the exit code of what could not be judged, the outside's first."""
    order = ("ok", *LEVELS)
    if order.index(tally.level) >= order.index(fail_on):
        return 1
    return 0 if not tally.failed else 3 if tally.failed[3] else 4


def _summary(console: Console, document: Mapping[str, Any], where: str) -> str:
    counts = ", ".join(f"{number} {level}" for level, number in document["levels"].items() if number)
    wheels = f"{document['wheels']} wheel{'' if document['wheels'] == 1 else 's'}"
    failed = f"; {document['failed']} could not be judged" if document["failed"] else ""
    lines = [f"  {row['wheels']:>6}  {row['rule']} [{row['backend']}]" for row in document["rules"][:_SHOWN]]
    if len(document["rules"]) > _SHOWN:
        lines.append(f"          and {len(document['rules']) - _SHOWN} more kinds of findings")
    verdict = console.verdict(document["verdict"])
    return "\n".join([*lines, f"{verdict}: {wheels} for {document['backend']}{where}: {counts or 'none'}{failed}"])


@click.command("merge", short_help="Join the results of a sweep's parts.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Write all lines to this file, as one sweep without parts would have.",
)
@click.option("--partial", is_flag=True, help="Join what there is, though parts are missing or break off.")
@click.option("--fail-on", type=click.Choice(LEVELS), default="block", show_default=True, help="As of audit.")
@shared_options
def merge(console: Console, files: tuple[Path, ...], results: Path | None, partial: bool, fail_on: str) -> int:
    """Join the results of a sweep's parts.

    FILE is what `audit --results` wrote. All parts must be there, finished, and of one sweep. Prints the wheels whose
    level reaches --fail-on, and the counts of all. Memory does not grow with the number of wheels.
    """
    from builder.audit.results import Tally, joined, written

    if results is not None and any(path.exists() and results.exists() and path.samefile(results) for path in files):
        raise BadInput(f"{results} is one of the parts", fix="write to another file")
    tally = Tally()
    heads: list[Head] = []
    lines: Iterator[Mapping[str, Any]] = joined(files, partial=partial, tally=tally, found=heads.append)
    first = next(lines, None)
    lines = _with_first(first, lines)
    if results is not None:
        lines = written(results, heads[0], lines, tally)
    order = ("ok", *LEVELS)
    for line in lines:
        audit = line.get("audit")
        if console.json:
            continue
        if audit is None:
            sys.stdout.write(f"failed {line['target']}: {line['failed']['what']}\n")
        elif order.index(audit["level"]) >= order.index(fail_on):
            rules = {f"{item['rule']} [{item['backend']}]": None for item in audit["findings"] if _counts(item)}
            level = console.verdict(audit["level"])
            sys.stdout.write(f"{level} {line['target']}: {', '.join(rules)}\n")
    document = {
        "schema": "builder/audit-merge/1",
        "verdict": tally.level,
        "backend": heads[0].backend,
        "policy": heads[0].policy,
        "parts": len(files),
        "results": None if results is None else str(results),
        **tally.to_json(),
    }
    console.document(
        document, lambda: _summary(console, document, f" in {len(files)} part{'' if len(files) == 1 else 's'}")
    )
    return _exit_code(tally, fail_on)


def _with_first(first: Mapping[str, Any] | None, rest: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    if first is not None:
        yield first
        yield from rest


def _counts(finding: Mapping[str, Any]) -> bool:
    return bool(finding["severity"] != "info")


@click.command("push", short_help="Put what audits saw into a registry, for other machines.")
@click.argument("reference", metavar="REF")
@plain_http_option
@shared_options
def push(console: Console, reference: str, plain_http: bool) -> int:
    """Put what audits saw into a registry, for other machines.

    What the store holds of wheels that this version of the tables scanned is joined with what REF holds already, so
    that the parts of a sweep can push to one place. Without a tag in REF, the tag names the version of the tables.
    """
    from builder.audit.exchange import push_facts

    return _exchange(console, "push", reference, plain_http=plain_http, run=push_facts)


@click.command("pull", short_help="Take what other machines' audits saw from a registry.")
@click.argument("reference", metavar="REF")
@click.option("--missing-ok", is_flag=True, help="Nothing there is no error: the first of many runs finds nothing.")
@plain_http_option
@shared_options
def pull(console: Console, reference: str, missing_ok: bool, plain_http: bool) -> int:
    """Take what other machines' audits saw from a registry.

    Wheels that were scanned there are judged here without being read or fetched. Whoever can write to REF decides what
    is taken for seen, so guard it as you guard the audit itself.
    """
    from builder.audit.exchange import pull_facts

    def run(repository: Repository, tag: str, *, store: Store, reporter: Console) -> Exchanged:
        return pull_facts(repository, tag, store=store, reporter=reporter, missing_ok=missing_ok)

    return _exchange(console, "pull", reference, plain_http=plain_http, run=run)


def _exchange(console: Console, command: str, text: str, *, plain_http: bool, run: Any) -> int:
    from builder.audit.audit import load_rules
    from builder.store import default_store

    reference: Reference = parse_ref(text)
    if reference.digest is not None:
        raise BadInput(f"cannot {command} {text}", why="it names a digest", fix="name a tag, or none")
    tag = reference.tag or load_rules().scanner.kind
    place = reference.with_tag(tag)
    repository = open_reference(console, reference, plain_http=plain_http)
    done: Exchanged = run(repository, tag, store=default_store(os.environ), reporter=console)
    document = {
        "schema": f"builder/audit-{command}/1",
        "verdict": done.verdict,
        "ref": str(place),
        "digest": None if done.digest is None else str(done.digest),
        "wheels": done.wheels,
        "taken": done.taken,
        "sent_bytes": done.sent_bytes,
    }
    console.document(
        document, lambda: f"{done.verdict} {place}: {done.wheels} wheels, {done.taken} of them were new here"
    )
    return 0
