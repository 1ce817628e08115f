"""`builder audit`: find what in wheels belongs to another backend."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

from builder.cli.audit_sweep import LEVELS as _LEVELS
from builder.cli.audit_sweep import merge, pull, push, sweep
from builder.cli.console import Console, shared_options
from builder.cli.registry_options import open_reference, plain_http_option
from builder.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from builder.audit.policy import AuditException
    from builder.audit.sources import Fit
    from builder.audit.values import AuditReport, TargetAudit
    from builder.lock.values import Lock
    from builder.names import Digest
    from builder.report.places import LockPlaces
    from builder.store import Store

Format = Literal["text", "json", "sarif", "junit", "github"]


class _TargetsOrCommand(click.Group):
    """A command with targets, or one of its subcommands when the first word is its name."""

    allow_interspersed_args = True
    _WORDS = "builder.audit.subcommand"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            ctx.meta[self._WORDS] = args
            return []
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        words: list[str] | None = ctx.meta.pop(self._WORDS, None)
        if words is None:
            return click.Command.invoke(self, ctx)
        # Beside this context rather than below it, so that its usage does not name this command's targets.
        name = f"{ctx.info_name} {words[0]}"
        with self.commands[words[0]].make_context(name, words[1:], parent=ctx.parent) as own:
            return own.command.invoke(own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return click.Command.collect_usage_pieces(self, ctx)


@click.command(
    "audit",
    cls=_TargetsOrCommand,
    commands=[merge, pull, push],
    no_args_is_help=False,
    short_help="Find what in wheels belongs to another backend.",
)
@click.argument("targets", nargs=-1, metavar="TARGET…")
@click.option("--backend", default=None, help="The backend whose image the wheels are for; a lock says its own.")
@click.option(
    "--format",
    "output",
    type=click.Choice(get_args(Format)),
    default=None,
    help="text, json, sarif (code scanning), junit (CI servers) or github (annotations). [default: text]",
)
@click.option("--python", default=None, help="Python of the image; a lock and an image say their own. [default: 3.11]")
@click.option(
    "--arch",
    type=click.Choice(["x86_64", "aarch64"]),
    default=None,
    help="Processor of the image; a lock and an image of one processor say their own. [default: x86_64]",
)
@click.option("--glibc", default="2.36", show_default=True, help="glibc of the image, to choose a requirement's wheel.")
@click.option(
    "--fail-on", type=click.Choice(_LEVELS), default="block", show_default=True, help="The mildest level that is a no."
)
@click.option(
    "--exceptions",
    type=click.Path(path_type=Path),
    default=None,
    help="TOML file of [[exception]] tables: package, rule, reason, expires.",
)
@click.option(
    "--project",
    type=click.Path(path_type=Path),
    default=None,
    help="Project file with exceptions and translation layers [default: builder.toml beside a lock].",
)
@click.option("--diff", is_flag=True, help="Show what changes between two targets: audit --diff OLD NEW.")
@click.option(
    "--against",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="LOCK",
    help="Report only what the audited lock adds to this one.",
)
@click.option("--all-chains", is_flag=True, help="Of a lock or an image, show every way to a package with findings.")
@click.option("--record", is_flag=True, help="Check every file's hash in RECORD too; reads each wheel once more.")
@click.option("--full", is_flag=True, help="Read a requirement's whole wheel even when its metadata blocks already.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Sweep: write a line of JSON for each wheel, in bounded memory; taken up again where it broke off.",
)
@click.option("--shard", default="1/1", metavar="I/N", help="Of a sweep, do only part I of N.")
@click.option(
    "--targets",
    "listed",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    default=None,
    metavar="FILE",
    help="Of a sweep, a file with more targets, one a line; - reads them from stdin.",
)
@click.option("--newest", is_flag=True, help="Of an index, audit only each project's newest version.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=None, help="Wheels at a time [default: all CPUs].")
@plain_http_option
@shared_options
def command(
    console: Console,
    /,
    targets: tuple[str, ...],
    backend: str | None,
    output: Format | None,
    python: str | None,
    arch: Literal["x86_64", "aarch64"] | None,
    glibc: str,
    fail_on: Literal["warn", "carry", "block"],
    exceptions: Path | None,
    project: Path | None,
    diff: bool,
    against: Path | None,
    all_chains: bool,
    record: bool,
    full: bool,
    results: Path | None,
    shard: str,
    listed: Path | None,
    newest: bool,
    jobs: int | None,
    plain_http: bool,
) -> int:
    """Find what in wheels belongs to another backend.

    TARGET is a wheel file, a folder of wheels, a lock, an image (host/name:tag or oci:DIR[:tag]), or a requirement
    such as catboost==1.2.8. A lock and an image are audited alone. A sweep (--results) takes wheels, folders,
    requirements and the URLs of indexes, of their project pages and of wheels, as many as there are.
    """
    from builder.audit.audit import Terms, audit_lock, audit_wheels, load_rules
    from builder.audit.environment import marker_environment
    from builder.audit.peek import peek
    from builder.audit.policy import load_exceptions
    from builder.audit.sources import Fit
    from builder.audit.sweep import Question
    from builder.lock.files import read_lock
    from builder.names import parse_backend
    from builder.report.places import lock_places
    from builder.store import default_store
    from builder.wheels.fetch import sound_wheels

    if backend is None:
        if not targets or not all(_is_lock(target) for target in targets):
            raise BadInput("--backend is missing", why="only a lock says its own", fix="add --backend NAME")
        backend = read_lock(Path(targets[0])).backend
    if all_chains and not (len(targets) == 1 and (_is_lock(targets[0]) or _is_image(targets[0]))):
        raise BadInput(
            "--all-chains needs a lock or an image",
            why="wheels on their own were pulled in by nobody",
            fix="name a lock or an image as the one target",
        )
    parse_backend(backend)
    store = default_store(os.environ)
    waived, translations = _of_project(project, targets, backend)
    waived += load_exceptions(exceptions) if exceptions else ()
    today = datetime.now(tz=UTC).date()
    machine = Fit(python=python or "3.11", arch=arch or "x86_64", glibc=glibc)
    if results is not None:
        if diff or against or output not in (None, "text", "json"):
            raise BadInput(
                "--results goes with none of --diff, --against and --format", why="a sweep has lines, and a summary"
            )
        return sweep(
            console,
            targets,
            results=results,
            shard=shard,
            listed=listed,
            newest=newest,
            question=Question(
                backend=backend,
                fit=machine,
                exceptions=waived,
                translations=translations,
                today=today,
                full=full,
                record=record,
            ),
            store=store,
            fail_on=fail_on,
            jobs=jobs,
        )
    if shard != "1/1" or listed is not None or newest or any(_is_url(target) for target in targets):
        raise BadInput(
            "this is a sweep, and --results is missing",
            why="--shard, --targets, --newest and URLs are for many wheels, whose results do not fit a report",
            fix="add --results FILE",
        )
    if not targets:
        raise BadInput("no target", fix="name a wheel, a folder, a lock, an image or a requirement")

    def lock_report(path: Path) -> AuditReport:
        lock = read_lock(path)
        if lock.backend != backend:
            raise BadInput(
                f"{path} is a lock for {lock.backend}, and {backend} is asked for",
                why="what is locked for one backend is another's on purpose",
                fix=f"leave out --backend, or name pylock.{backend}.toml",
            )
        wheels = _wheelhouse(console, lock, store, jobs)
        with sound_wheels(lock.packages, store):
            return audit_lock(
                lock,
                wheels,
                backend=backend,
                reporter=console,
                store=store,
                jobs=jobs,
                exceptions=waived,
                translations=translations,
                today=today,
                all_chains=all_chains,
                record=record,
            )

    terms = Terms(
        backend=backend,
        environment=marker_environment(machine.python, machine.arch),
        exceptions=waived,
        translations=translations,
        today=today,
    )

    def enough(client: httpx.Client, url: str, file: str, digest: Digest) -> TargetAudit | None:
        return peek(client, url, file, digest, terms, load_rules())

    def wheel_report(names: tuple[str, ...]) -> tuple[AuditReport, list[tuple[Path, str]]]:
        early = None if full or diff else enough
        found = [item for name in names for item in _wheels(console, name, store, machine, enough=early)]
        wheels = [item for item in found if isinstance(item, tuple)]
        report = audit_wheels(wheels, terms, store=store, reporter=console, jobs=jobs, record=record)
        audited = iter(report.targets)
        targets = tuple(next(audited) if isinstance(item, tuple) else item for item in found)
        return replace(report, targets=targets), wheels

    if diff:
        if len(targets) != 2 or any(_is_image(target) for target in targets):
            raise BadInput(
                "--diff compares two wheels, requirements, folders or locks",
                why=f"{len(targets)} targets are named" if len(targets) != 2 else "an image is named",
                fix="builder audit --diff OLD NEW --backend B",
            )
        if output not in (None, "text", "json"):
            raise BadInput(f"--diff has no --format {output}", fix="use text or json")
        sides = [
            (lock_report(Path(target)), _locked_files(console, Path(target), store))
            if _is_lock(target)
            else wheel_report((target,))
            for target in targets
        ]
        return _finish_diff(console, sides[0], sides[1], store, output, fail_on)
    if against is not None and not (len(targets) == 1 and _is_lock(targets[0])):
        raise BadInput("--against needs a lock as its one target", fix="builder audit NEW.toml --against OLD.toml")
    if len(targets) == 1 and _is_lock(targets[0]):
        path = Path(targets[0])
        report = lock_report(path)
        if against is not None:
            from builder.audit.compare import only_added

            report = only_added(lock_report(against), report)
        return _finish(console, report, lock_places(path), output, fail_on)
    if any(_is_lock(target) for target in targets):
        raise BadInput(
            "a lock is audited alone", why="its wheels are judged as one environment", fix="name only the lock"
        )
    if any(_is_image(target) for target in targets):
        if len(targets) > 1:
            raise BadInput(
                "an image is audited alone", why="its files are judged as one environment", fix="name only the image"
            )
        report = _audit_image(
            console,
            targets[0],
            backend,
            store,
            python=python,
            arch=arch,
            plain_http=plain_http,
            exceptions=waived,
            translations=translations,
            today=today,
            all_chains=all_chains,
        )
        return _finish(console, report, None, output, fail_on)
    report, _ = wheel_report(targets)
    return _finish(console, report, None, output, fail_on)


def _of_project(
    project: Path | None, targets: tuple[str, ...], backend: str
) -> tuple[tuple[AuditException, ...], tuple[str, ...]]:
    """Exceptions and translation layers of the project file, of the one beside a lock when none is named."""
    from builder.project.load import FILE_NAME, find_project, load_project

    if project is None:
        locks = [Path(target).parent / FILE_NAME for target in targets if _is_lock(target)]
        project = next((path for path in locks[-1:] if path.is_file()), None)
    if project is None:
        return (), ()
    loaded = load_project(find_project(project))
    return loaded.exceptions, loaded.options(backend).translations


def _is_lock(target: str) -> bool:
    return target.endswith(".toml")


def _is_url(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def _is_image(target: str) -> bool:
    """`oci:DIR`, `host/name`, `host:5000/name:tag` — and no requirement such as `name @ https://…`, file or folder."""
    if target.startswith("oci:"):
        return True
    spoken = "/" in target and "@ " not in target and "://" not in target
    return spoken and not target.endswith(".whl") and not Path(target).exists()


def _audit_image(
    console: Console,
    target: str,
    backend: str,
    store: Store,
    *,
    python: str | None,
    arch: Literal["x86_64", "aarch64"] | None,
    plain_http: bool,
    exceptions: tuple[AuditException, ...],
    translations: tuple[str, ...],
    today: date,
    all_chains: bool,
) -> AuditReport:
    from builder.audit.image import audit_image
    from builder.names import parse_ref
    from builder.registry import find_image

    reference = parse_ref(target)
    repository = open_reference(console, reference, plain_http=plain_http, mirrors=True)
    return audit_image(
        repository,
        find_image(reference, repository).digest,
        backend=backend,
        python=python,
        arch=arch,
        store=store,
        reporter=console,
        exceptions=exceptions,
        translations=translations,
        today=today,
        all_chains=all_chains,
    )


def _locked_files(console: Console, path: Path, store: Store) -> list[tuple[Path, str]]:
    """(path, wheel file name) of a lock's wheels, in its order."""
    from builder.lock.files import read_lock

    lock = read_lock(path)
    house = _wheelhouse(console, lock, store)
    return [(house[package.file], package.file) for package in lock.packages]


def _finish_diff(
    console: Console,
    old: tuple[AuditReport, list[tuple[Path, str]]],
    new: tuple[AuditReport, list[tuple[Path, str]]],
    store: Store,
    output: Format | None,
    fail_on: str,
) -> int:
    """Print the comparison; 1 when something got worse and reaches `fail_on`."""
    from builder.audit.audit import load_rules
    from builder.audit.compare import compared, profile_of
    from builder.audit.document import comparison_document
    from builder.report.diff_text import diff_text

    scanner = load_rules().scanner
    profiles = [
        [
            profile_of(target, scanner.facts(path, file, digest=target.sha256, store=store))
            for target, (path, file) in zip(report.targets, wheels, strict=True)
        ]
        for report, wheels in (old, new)
    ]
    found = compared(profiles[0], profiles[1], backend=new[0].backend, policy=new[0].policy)
    console.json = console.json or output == "json"
    console.document(comparison_document(found), lambda: diff_text(found, paint=console.verdict))
    order = ("ok", *_LEVELS)
    return int(order.index(found.level) >= order.index(fail_on))


def _wheelhouse(console: Console, lock: Lock, store: Store, jobs: int | None = None) -> dict[str, Path]:
    """The lock's wheels, fetched when the store lacks them, and looked at while others still arrive."""
    from builder.audit.audit import scanned_as_they_arrive
    from builder.wheels.fetch import fetch
    from builder.wheels.settings import read_index_settings

    with scanned_as_they_arrive(store, jobs=jobs) as arrived:
        house = fetch(
            lock.packages,
            store,
            reporter=console,
            settings=read_index_settings(os.environ),
            environ=os.environ,
            offline=console.offline,
            arrived=arrived,
        )
    return dict(house.files)


def _wheels(
    console: Console,
    target: str,
    store: Store,
    machine: Fit,
    *,
    enough: Callable[[httpx.Client, str, str, Digest], TargetAudit | None] | None,
) -> list[tuple[Path, str] | TargetAudit]:
    """(path, wheel file name) of a target's wheels; an audit for a requirement that `enough` could judge."""
    from builder.audit.requirement import FoundWheel, fetch_requirement

    path = Path(target)
    if path.is_dir():
        wheels = sorted(path.rglob("*.whl"))
        if not wheels:
            raise BadInput(f"no wheels in {path}", fix="name a folder that holds .whl files")
        return [(wheel, wheel.name) for wheel in wheels]
    if target.endswith(".whl"):
        if not path.is_file():
            raise BadInput(f"no such file: {target}", fix="check the path")
        return [(path, path.name)]
    found = fetch_requirement(
        target,
        store,
        python=machine.python,
        arch=machine.arch,
        glibc=machine.glibc,
        reporter=console,
        environ=os.environ,
        offline=console.offline,
        enough=enough,
    )
    return [(found.path, found.file) if isinstance(found, FoundWheel) else found]


def _finish(
    console: Console, report: AuditReport, places: LockPlaces | None, output: Format | None, fail_on: str
) -> int:
    """Print the report; 1 when its level reaches `fail_on`."""
    from builder.audit.document import audit_document
    from builder.report.audit_text import audit_text

    def text() -> str:
        return audit_text(report, paint=console.verdict, verbose=console.verbose)

    if output in (None, "text", "json"):
        console.json = console.json or output == "json"
        console.document(audit_document(report), text)
    elif console.json:
        raise BadInput(f"--json and --format {output} exclude each other", fix="leave one out")
    else:
        click.echo(_rendered(report, places, output))
    order = ("ok", *_LEVELS)
    return int(order.index(report.level) >= order.index(fail_on))


def _rendered(report: AuditReport, places: LockPlaces | None, output: Format | None) -> str:
    from builder.report.github import github_annotations, github_summary
    from builder.report.junit import junit
    from builder.report.sarif import sarif

    if output == "sarif":
        return sarif(report, places)
    if output == "junit":
        return junit(report)
    page = os.environ.get("GITHUB_STEP_SUMMARY")
    if page:
        with Path(page).open("a", encoding="utf-8") as file:
            file.write(github_summary(report))
    return github_annotations(report, places)
