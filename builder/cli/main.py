"""The command `builder`: finds the command's module when it is called for, and turns every error into its exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence

import click

from builder import __version__
from builder.cli.lazy import LazyGroup
from builder.errors import BadInput, BuilderError, OutsideFailed

__all__ = ["COMMANDS", "build_main", "cli", "main", "run"]

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("builder.cli.init", "Write a commented builder.toml for the project at hand."),
    "matrix": ("builder.cli.matrix", "Compatibility tables: check, list, show, explain, solve."),
    "node": ("builder.cli.node", "Node classes: probe this machine, list and show the known ones."),
    "lock": ("builder.cli.lock", "Decide and write the hashed lock of one backend."),
    "base": ("builder.cli.base", "Base images: is one fit for a backend and a lock, and is it still what was locked?"),
    "audit": ("builder.cli.audit", "Find what in wheels belongs to another backend."),
    "dockerfile": ("builder.cli.dockerfile", "Print the Dockerfile of one backend."),
    "build": ("builder.cli.build", "Lock, audit, assemble, prove, smoke-test and publish an image."),
    "bake": ("builder.cli.bake", "Write docker-bake.hcl and a GitHub matrix for all locked backends."),
    "prove": ("builder.cli.prove", "Prove statically that an image loads on a node class."),
    "smoke": ("builder.cli.smoke", "Run the checks inside an image."),
    "publish": ("builder.cli.publish", "Publish an image and its evidence under its version tag."),
    "sign": ("builder.cli.sign", "Sign all evidence of an image with a private key."),
    "promote": ("builder.cli.promote", "Move a node class's tag to an image that passed on that class."),
    "rollback": ("builder.cli.rollback", "Move a node class's tag back to the image before."),
    "pick": ("builder.cli.pick", "Print the digest that a node should run."),
    "verify": ("builder.cli.verify", "Check every byte of an image and all its evidence."),
    "copy": ("builder.cli.copy", "Copy an image and its evidence between registries and layouts."),
    "cache": ("builder.cli.cache", "The engine cache: compiled engines by what makes them valid."),
    "gc": ("builder.cli.gc", "Clear away what nobody needs, in the store, in layouts or in registries."),
    "images": ("builder.cli.images", "List the images of a repository and their evidence."),
    "catalogue": ("builder.cli.catalogue", "List a repository's images by backend, and publish the list."),
    "doctor": ("builder.cli.doctor", "What this machine can do, with the mend for what it cannot."),
}
"""Command to (module, one-line help). The module's attribute `command` is the click command of that name."""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 yes, 1 the answer is no, 2 the question is wrong, 3 the outside world failed, 4 cannot tell.",
)
@click.version_option(__version__, prog_name="builder", message="%(prog)s %(version)s")
def cli() -> None:
    """One Python service, one locked, audited image per accelerator backend."""


class Interrupted(BuilderError):
    """Ctrl-C."""

    kind = "interrupted"
    exit_code = 130

    def __init__(self) -> None:
        super().__init__(
            "interrupted",
            why="Ctrl-C; no tag names anything unfinished, and what was finished is kept",
            fix="run it again to go on",
        )


def run(args: Sequence[str]) -> int:
    """Run one command line; returns its exit code. Errors are printed the way the command line asked for."""
    as_json = "--json" in args
    try:
        # not cli.main: it answers a closed pipe with exit 1, which here would mean "no"
        with cli.make_context("builder", list(args)) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except BuilderError as error:
        return _report(error, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(error.format_message() + "\n")
        return 2
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "builder"
        fix = f"see {path} --help"
        if isinstance(error, click.MissingParameter) and error.param is not None and error.param.name == "backend":
            from builder.resources import backends

            fix = f"--backend NAME, a [backend.NAME] of the project: {', '.join(backends())}"
        fault = BadInput(error.format_message(), fix=fix)
        return _report(fault, as_json=as_json)
    except click.ClickException as error:
        return _report(BadInput(error.format_message()), as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        return _report(Interrupted(), as_json=as_json)
    except BrokenPipeError:
        # what is still buffered goes nowhere, instead of failing once more when the interpreter ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _report(_disk_fault(error), as_json=as_json)
    return result if isinstance(result, int) else 0


_PATH_FAULTS = {
    errno.EACCES: "let this user read it, and every folder above it",
    errno.EPERM: "let this user read it, and every folder above it",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: what stands before a / is a folder",
    errno.EISDIR: "name a file, not a folder",
    errno.ELOOP: "mend the symbolic links in the path",
    errno.ENAMETOOLONG: "choose a shorter path",
}
"""What is wrong with a path that was given, and its mend; every other error is the machine's."""


def _disk_fault(error: OSError) -> BuilderError:
    """What the operating system refused and no room foresaw; rooms turn failed writes into errors of their own."""
    if error.errno is None:
        raise error
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
    why = error.strerror or str(error)
    if path and error.errno in _PATH_FAULTS:
        return BadInput(f"cannot use {path}", why=why, fix=_PATH_FAULTS[error.errno])
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return OutsideFailed(f"cannot write {path or 'a file'}", why=why, fix="free some space")
    return OutsideFailed(
        f"the operating system refused{f' to use {path}' if path else ''}",
        why=why,
        fix="mend that on this machine, and try again; builder doctor shows what it lacks",
    )


def _report(error: BuilderError, *, as_json: bool) -> int:
    from builder.cli.console import error_document, print_document, print_error

    if as_json:
        print_document(error_document(error))
    else:
        print_error(error)
    return error.exit_code


def main() -> None:
    """Entry point of `builder`."""
    _print_anything()
    sys.exit(run(sys.argv[1:]))


def _print_anything() -> None:
    """Names of files and words of other programs are printed in any locale, escaped where it has no such character."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def build_main() -> None:
    """Entry point of `build`, which is `builder build`."""
    _print_anything()
    args = sys.argv[1:]
    if args == ["--version"]:
        sys.exit(run(args))
    sys.exit(run(["build", *args]))
