"""Where the files of a wheel go, as rules and as a program. Needs nothing but the standard library
of Python 3.9 or newer.

The built-in engine imports this module for the rules when it splices a wheel into a layer. The other engines copy this
file into their build context and run it with the base image's own Python, so both make the same tree, byte for byte:

    python3 install.py --target /opt/venv --python 3.11 --base-python /usr/bin/python3.11 --wheels wheels.json

With `--compile-bytecode` the Python files are compiled too; with `--bytecode-only FILE` nothing is installed, and what
would be compiled is written to a zip archive.

`wheels.json` is a list of `{"file": "<wheel file name>", "path": "<where it lies>", "sha256": "<hex>"}` in install
order. A wheel with another digest is refused before anything is written.

The rules (LAYOUT counts their changes):

- The archive's root, `.data/purelib` and `.data/platlib` go to lib/pythonX.Y/site-packages; `.data/scripts` to bin;
  `.data/data` to the environment's root; `.data/headers` to include/site/pythonX.Y/<name>. Unknown keys are refused.
- Entry points of `console_scripts` and `gui_scripts` become small Python files in bin, mode 755. They replace a
  `.data/scripts` file of the same name. A `.data/scripts` file that starts with `#!python` gets the environment's
  interpreter, arguments kept (PEP 427, "Recommended installer features").
- Files are 755 when the archive has any execute bit, else 644; scripts of an archive that keeps no modes are 755.
  Directories are 755. Everything belongs to root. Empty directories of the archive are left out.
- `__pycache__` members are left out: Python would run them in place of the source that was audited.
- INSTALLER says `builder`. REQUESTED is not written: it would make the same wheel's files differ between projects.
- RECORD lists what was installed, sorted by path, LF line ends, hashes taken from the wheel's own RECORD where it has
  one of at least 256 bits for an unchanged file, else computed.
- When two wheels bring the same path, the one installed later stays.
- Bytecode, where asked for: every .py file below site-packages, by the Python that will run it, into `__pycache__`, as
  "unchecked hash-based" (PEP 552), so that no file's time decides and no source is read. A file that does not compile
  is left to fail where it is imported. Not listed in RECORD, as with PyPA's installer and uv: the same wheel's other
  files do not depend on who compiles it (specification, "The RECORD file": compiled files need no row).

Sources: the binary distribution format, entry points and recording installed projects pages of packaging.python.org.
"""

from __future__ import annotations

import argparse
import base64
import configparser
import csv
import hashlib
import importlib.util
import io
import json
import marshal
import os
import re
import shutil
import stat
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path, PurePosixPath

__all__ = [
    "BYTECODE_LAYOUT",
    "LAYOUT",
    "SKELETON_LAYOUT",
    "BadWheel",
    "Entry",
    "Placed",
    "Venv",
    "bytecode_path",
    "is_source",
    "place",
    "skeleton",
]

LAYOUT = "1"
"""Version of the rules above; part of every cache key and of the layers' identity."""

SKELETON_LAYOUT = "1"
"""Version of the environment's own files (`skeleton`)."""

BYTECODE_LAYOUT = "1"
"""Version of how bytecode is made and where it lies."""

_INSTALLER = b"builder\n"
_STRONG = ("sha256=", "sha384=", "sha512=")


class BadWheel(ValueError):
    """The wheel cannot be installed by these rules; the text says which member and why."""


@dataclass(frozen=True)
class Venv:
    """The environment that wheels are installed into."""

    root: str
    """Absolute path, e.g. /opt/venv."""
    python: str
    """Minor version, e.g. 3.11."""

    @property
    def site_packages(self) -> str:
        """Relative to `root`."""
        return f"lib/python{self.python}/site-packages"

    @property
    def interpreter(self) -> str:
        """What scripts name in their first line."""
        return f"{self.root}/bin/python"


@dataclass(frozen=True)
class Entry:
    """One file of the archive, as the rules need to know it."""

    name: str
    mode: int
    """Unix permission bits, 0 when the archive keeps none."""


@dataclass(frozen=True)
class Placed:
    """One file of the environment."""

    path: str
    """Relative to the environment's root, `/`-separated."""
    executable: bool
    member: str | None
    """Archive member whose bytes it is; None when `content` holds them."""
    content: bytes | None = None
    link: str | None = None
    """Target, when it is a symbolic link (only in `skeleton`)."""


def place(filename: str, entries: Sequence[Entry], read: Callable[[str], bytes], venv: Venv) -> tuple[Placed, ...]:
    """What an environment gains from one wheel, sorted by path.

    `read` returns a member's bytes; it is called for the metadata, for scripts, and for members that the wheel's
    RECORD has no strong hash for. Raises `BadWheel`.
    """
    name = _project(filename)
    names = {entry.name for entry in entries}
    info = _dist_info(filename, names, name)
    _check_wheel_version(filename, info, names, read)
    data = f"{info.removesuffix('.dist-info')}.data/"
    record_path = f"{info}/RECORD"
    hashes = _recorded(read(record_path)) if record_path in names else {}
    own = {item.path for item in skeleton(venv, "/")}
    placed: dict[str, Placed] = {}
    rows: dict[str, tuple[str, str]] = {}
    for entry in entries:
        if entry.name in (record_path, f"{info}/INSTALLER") or "__pycache__" in entry.name.split("/")[:-1]:
            continue
        if not _plain(entry.name):
            raise BadWheel(f"{filename}: member {entry.name!r} is not a plain relative path")
        scheme, path = _destination(filename, entry.name, data, info, venv)
        if path in own:
            raise BadWheel(f"{filename}: member {entry.name!r} would replace the environment's own {path}")
        if path in placed:
            raise BadWheel(f"{filename}: two members are installed as {path!r}")
        script = scheme == "scripts"
        executable = bool(entry.mode & 0o111) or (script and entry.mode == 0)
        content = _with_interpreter(read(entry.name), venv) if script else None
        member = entry.name if content is None else None
        placed[path] = Placed(path=path, executable=executable, member=member, content=content)
        if content is not None:
            rows[path] = _row(content)
        elif entry.name in hashes:
            rows[path] = hashes[entry.name]
        else:
            rows[path] = _row(read(entry.name))
    entry_points = f"{info}/entry_points.txt"
    if entry_points in names:
        for script_name, module, attribute in _scripts(filename, read(entry_points)):
            content = _wrapper(module, attribute, venv)
            path = f"bin/{script_name}"
            if path in own:
                raise BadWheel(f"{filename}: entry point {script_name!r} would replace the environment's own {path}")
            placed[path] = Placed(path=path, executable=True, member=None, content=content)
            rows[path] = _row(content)
    installer = f"{venv.site_packages}/{info}/INSTALLER"
    placed[installer] = Placed(path=installer, executable=False, member=None, content=_INSTALLER)
    rows[installer] = _row(_INSTALLER)
    record = f"{venv.site_packages}/{record_path}"
    text = _record_text(rows, record, venv)
    placed[record] = Placed(path=record, executable=False, member=None, content=text)
    return tuple(placed[path] for path in sorted(placed))


def skeleton(venv: Venv, base_python: str) -> tuple[Placed, ...]:
    """The environment's own files, sorted by path: pyvenv.cfg and the interpreter's names.

    Made by hand, because `python -m venv` is a package of its own on Debian and writes the building machine's paths.
    """
    home = str(PurePosixPath(base_python).parent)
    config = (
        f"home = {home}\ninclude-system-site-packages = false\nversion = {venv.python}\nexecutable = {base_python}\n"
    )
    links = {"bin/python": base_python, "bin/python3": "python", f"bin/python{venv.python}": "python"}
    made = [Placed(path=path, executable=True, member=None, link=target) for path, target in links.items()]
    made.append(Placed(path="pyvenv.cfg", executable=False, member=None, content=config.encode()))
    return tuple(sorted(made, key=lambda item: item.path))


def is_source(path: str, venv: Venv) -> bool:
    """Whether a file of the environment is compiled where bytecode is asked for; `path` is relative to its root."""
    return path.endswith(".py") and path.startswith(venv.site_packages + "/")


def bytecode_path(path: str, venv: Venv) -> str:
    """Where CPython looks for the bytecode of a source (PEP 3147); both relative to the environment's root."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/__pycache__/{name[: -len('.py')]}.cpython-{venv.python.replace('.', '')}.pyc"


def _project(filename: str) -> str:
    parts = filename[: -len(".whl")].split("-")
    if not filename.endswith(".whl") or len(parts) not in (5, 6):
        raise BadWheel(f"{filename}: not a wheel file name")
    return parts[0]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _dist_info(filename: str, names: Iterable[str], project: str) -> str:
    folders = sorted({name.split("/", 1)[0] for name in names if "/" in name})
    found = [
        folder
        for folder in folders
        if folder.endswith(".dist-info")
        and _normal(folder.removesuffix(".dist-info").split("-")[0]) == _normal(project)
    ]
    if len(found) != 1:
        raise BadWheel(f"{filename}: expected one .dist-info folder for {project}, found {len(found)}")
    return found[0]


def _check_wheel_version(filename: str, info: str, names: set[str], read: Callable[[str], bytes]) -> None:
    if f"{info}/WHEEL" not in names:
        raise BadWheel(f"{filename}: it has no {info}/WHEEL")
    version = str(BytesParser().parsebytes(read(f"{info}/WHEEL")).get("Wheel-Version", "")).strip()
    if version.split(".")[0] != "1":
        raise BadWheel(f"{filename}: wheel format {version or 'without a version'}, these rules are for 1.x")


def _plain(name: str) -> bool:
    parts = name.split("/")
    return not (name.startswith("/") or "\\" in name or "\0" in name or ".." in parts or "." in parts or "" in parts)


def _destination(filename: str, name: str, data: str, info: str, venv: Venv) -> tuple[str, str]:
    """Scheme key, and path relative to the environment's root."""
    if not name.startswith(data):
        return "purelib", f"{venv.site_packages}/{name}"
    scheme, _, rest = name.removeprefix(data).partition("/")
    if not rest:
        raise BadWheel(f"{filename}: member {name!r} lies directly in the .data folder")
    if scheme in ("purelib", "platlib"):
        return scheme, f"{venv.site_packages}/{rest}"
    if scheme == "scripts":
        return scheme, f"bin/{rest}"
    if scheme == "data":
        return scheme, rest
    if scheme == "headers":
        return scheme, f"include/site/python{venv.python}/{info.split('-')[0]}/{rest}"
    raise BadWheel(f"{filename}: member {name!r} is for {scheme!r}, which no installer knows")


def _with_interpreter(data: bytes, venv: Venv) -> bytes | None:
    """The script with the environment's interpreter, or None when it stays as it is."""
    line, newline, rest = data.partition(b"\n")
    if not line.startswith(b"#!python"):
        return None
    arguments = line.removeprefix(b"#!pythonw" if line.startswith(b"#!pythonw") else b"#!python").strip()
    return b"#!" + venv.interpreter.encode() + (b" " + arguments if arguments else b"") + newline + rest


_POINT = re.compile(r"(?P<module>\w+(?:\.\w+)*)\s*:\s*(?P<attribute>\w+(?:\.\w+)*)\s*(?:\[.*\])?")


class _Points(configparser.ConfigParser):
    """entry_points.txt: names keep their case, only `=` separates (entry points specification, "File format")."""

    optionxform = staticmethod(str)  # type: ignore[assignment]


def _scripts(filename: str, text: bytes) -> tuple[tuple[str, str, str], ...]:
    parser = _Points(delimiters=("=",), interpolation=None, strict=False)
    try:
        parser.read_string(text.decode())
    except (configparser.Error, UnicodeDecodeError) as error:
        raise BadWheel(f"{filename}: entry_points.txt cannot be read: {error}") from error
    found: dict[str, tuple[str, str, str]] = {}
    for section in ("console_scripts", "gui_scripts"):
        if not parser.has_section(section):
            continue
        for name, value in parser.items(section):
            match = _POINT.fullmatch(value.strip())
            if match is None or not _plain(name) or "/" in name:
                raise BadWheel(f"{filename}: entry point {name!r} = {value!r} cannot become a script")
            found[name] = (name, match["module"], match["attribute"])
    return tuple(found.values())


def _wrapper(module: str, attribute: str, venv: Venv) -> bytes:
    first = attribute.split(".", 1)[0]
    return (
        f"#!{venv.interpreter}\n"
        "import sys\n\n"
        f"from {module} import {first}\n\n"
        'if __name__ == "__main__":\n'
        f"    sys.exit({attribute}())\n"
    ).encode()


def _recorded(text: bytes) -> dict[str, tuple[str, str]]:
    """Path to (hash, size) of the wheel's RECORD, only rows with a strong hash."""
    rows = csv.reader(io.StringIO(text.decode("utf-8", "surrogateescape"), newline=""))
    return {row[0]: (row[1], row[2]) for row in rows if len(row) >= 3 and row[1].startswith(_STRONG)}


def _row(data: bytes) -> tuple[str, str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}", str(len(data))


def _record_text(rows: dict[str, tuple[str, str]], record: str, venv: Venv) -> bytes:
    up = "../" * len(venv.site_packages.split("/"))
    inside = venv.site_packages + "/"
    listed = [(path.removeprefix(inside) if path.startswith(inside) else up + path, *row) for path, row in rows.items()]
    listed.append((record.removeprefix(inside), "", ""))
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(sorted(listed))
    return text.getvalue().encode("utf-8", "surrogateescape")


# The program: everything below is only used inside an image, by the Python that is in it.


def _compiled(source: bytes, path: str) -> bytes | None:
    """The bytecode file of a source that lies at the absolute `path`, or None when it does not compile."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, path, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError):
        return None
    # Read back once: what marshal writes depends on who else holds an object, and now nobody but this code does.
    data = marshal.dumps(marshal.loads(marshal.dumps(code)))  # noqa: S302 - written in this line
    hashed_unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + hashed_unchecked + importlib.util.source_hash(source) + data


def _same_hashes(arguments: Sequence[str]) -> None:
    """Start again unless strings hash alike in every run: the order of constant sets follows the hashes."""
    if sys.flags.hash_randomization:
        environ = {**{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-s", "-S", "-B", __file__, *arguments], environ)  # noqa: S606 - itself


def _compile_installed(paths: Iterable[str], venv: Venv, target: Path) -> tuple[int, int]:
    """Compile what lies there when all wheels are installed; how many did and did not."""
    done = failed = 0
    for path in sorted(path for path in set(paths) if is_source(path, venv)):
        data = _compiled((target / path).read_bytes(), f"{venv.root}/{path}")
        if data is None:
            failed += 1
            continue
        item = Placed(path=bytecode_path(path, venv), executable=False, member=None)
        with _created(target, item) as file:
            file.write(data)
        done += 1
    return done, failed


def _write_bytecode(wheels: Sequence[tuple[Path, str, set[str]]], venv: Venv, archive: Path) -> tuple[int, int]:
    """Compile sources of wheels, all but those of the third fields, into a zip archive with their installed paths."""
    done = failed = 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as out:
        for wheel, filename, without in wheels:
            with zipfile.ZipFile(wheel) as opened:
                for item, info in _placed(opened, filename, venv):
                    if info is None or not is_source(item.path, venv) or item.path in without:
                        continue
                    data = _compiled(opened.read(info), f"{venv.root}/{item.path}")
                    if data is None:
                        failed += 1
                        continue
                    out.writestr(zipfile.ZipInfo(bytecode_path(item.path, venv)), data)
                    done += 1
    return done, failed


def _placed(archive: zipfile.ZipFile, filename: str, venv: Venv) -> list[tuple[Placed, zipfile.ZipInfo | None]]:
    """What is installed of an opened wheel, each with the member that holds its bytes."""
    infos: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if info.is_dir():
            continue
        mode = info.external_attr >> 16 if info.create_system == 3 else 0
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise BadWheel(f"{filename}: member {info.filename!r} is not a plain file")
        infos.pop(info.filename, None)
        infos[info.filename] = info
    entries = [
        Entry(name, (info.external_attr >> 16) & 0o7777 if info.create_system == 3 else 0)
        for name, info in infos.items()
    ]
    placed = place(filename, entries, lambda name: archive.read(infos[name]), venv)
    return [(item, None if item.member is None else infos[item.member]) for item in placed]


def _install(wheel: Path, filename: str, venv: Venv, target: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        placed = _placed(archive, filename, venv)
        for item, info in placed:
            with _created(target, item) as file:
                if info is None:
                    file.write(item.content or b"")
                else:
                    with archive.open(info) as source:
                        shutil.copyfileobj(source, file, 1 << 20)
    return [item.path for item, _ in placed]


def _created(target: Path, item: Placed) -> io.BufferedWriter:
    path = _with_parents(target, item.path)
    file = path.open("wb")
    path.chmod(0o755 if item.executable else 0o644)
    return file


def _with_parents(target: Path, name: str) -> Path:
    """The path, free to be written; its folders are made with mode 755 whatever the umask."""
    *folders, last = name.split("/")
    folder = target
    for part in folders:
        folder /= part
        if folder.is_symlink():
            raise BadWheel(f"{folder} is a symbolic link; nothing is installed through it")
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)
    if last != ".":
        (folder / last).unlink(missing_ok=True)
    return folder / last


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the listed wheels; exit status 1 and one line on stderr when a wheel is refused."""
    parser = argparse.ArgumentParser(description="Install verified wheels into an environment, without any index.")
    parser.add_argument("--target", required=True, help="root of the environment, as the image will have it")
    parser.add_argument("--python", required=True, help="minor version, e.g. 3.11")
    parser.add_argument("--base-python", required=True, help="absolute path of the interpreter of the base")
    parser.add_argument("--wheels", required=True, type=Path, help="JSON list of {file, path, sha256}, in order")
    parser.add_argument("--destdir", type=Path, default=Path("/"), help="write below this folder instead of /")
    parser.add_argument("--compile-bytecode", action="store_true", help="compile the Python files that are installed")
    parser.add_argument("--bytecode-only", type=Path, metavar="FILE", help="install nothing; write bytecode to FILE")
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser.parse_args(given)
    if options.compile_bytecode or options.bytecode_only:
        _same_hashes(given)
    venv = Venv(root=options.target, python=options.python)
    target = options.destdir / options.target.lstrip("/")
    try:
        wheels = json.loads(options.wheels.read_bytes())
        folder = options.wheels.parent
        for wheel in wheels:
            digest = _sha256(folder / wheel["path"])
            if digest != wheel["sha256"]:
                raise BadWheel(f"{wheel['file']}: its sha256 is {digest}, the lock says {wheel['sha256']}")
        if options.bytecode_only:
            rows = [(folder / wheel["path"], wheel["file"], set(wheel.get("without", ()))) for wheel in wheels]
            compiled = _write_bytecode(rows, venv, options.bytecode_only)
            sys.stdout.write(f"{compiled[0]} files compiled, {compiled[1]} do not compile\n")
            return 0
        options.destdir.mkdir(parents=True, exist_ok=True)
        _with_parents(options.destdir, f"{options.target.strip('/')}/.")
        for item in skeleton(venv, options.base_python):
            if item.link is not None:
                _with_parents(target, item.path).symlink_to(item.link)
            else:
                with _created(target, item) as made:
                    made.write(item.content or b"")
        _with_parents(target, f"{venv.site_packages}/.")
        files = [path for wheel in wheels for path in _install(folder / wheel["path"], wheel["file"], venv, target)]
        compiled = _compile_installed(files, venv, target) if options.compile_bytecode else (0, 0)
    except (BadWheel, zipfile.BadZipFile, NotImplementedError, OSError, KeyError, TypeError, ValueError) as error:
        # NotImplementedError: a compression that this Python's zipfile does not know, such as zstd before 3.14
        sys.stderr.write(f"install.py: {error}\n")
        return 1
    told = f", {compiled[0]} compiled, {compiled[1]} do not compile" if options.compile_bytecode else ""
    sys.stdout.write(f"{len(wheels)} wheels, {len(files)} files{told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
