"""Wheels as layers, without compressing anything: deflate streams are copied from the wheel as they are.

One pass inflates each member for the layer's diff id and checks it against the archive's length and CRC-32; the layer's
own bytes are the wheel's. What a layer depends on is its wheels' digests, the install rules and the layer format, so it
is made once for all projects of the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.errors import Where
from builder.image import gzipstream, install
from builder.image.install import Entry, Placed, Venv, place
from builder.image.layers import LayerWriter, write_layer
from builder.image.packing import GZIP, Packing
from builder.image.values import Layer
from builder.names import Digest
from builder.store import Store
from builder.wheels.archive import DEFLATED, Member, UnsafeWheel, WheelArchive

__all__ = ["WheelFile", "placed_files", "skeleton_layer", "wheel_layer"]

_PIECE = 1 << 18
"""Bytes inflated or copied at a time: enough for the digests' threads, little enough for many of them to wait."""
_STORED_PIECE = 1 << 20
"""The same for a member that is written as stored blocks; where those end is part of the format."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFile:
    """One locked wheel on disk."""

    file: str
    """Wheel file name."""
    name: str
    """Normalised project name."""
    path: Path
    sha256: Digest
    title: str
    """`torch 2.13.0+cpu`."""


def placed_files(archive: WheelArchive, venv: Venv) -> tuple[Placed, ...]:
    """Where the files of an opened wheel go (install.py has the rules); `UnsafeWheel` when no rule fits."""
    members = {member.name: member for member in archive.members}
    entries = [Entry(member.name, member.mode) for member in archive.members]
    try:
        return place(archive.filename, entries, lambda name: archive.read(members[name]), venv)
    except install.BadWheel as error:
        raise UnsafeWheel(
            f"{archive.filename} cannot be installed",
            why=str(error).removeprefix(f"{archive.filename}: "),
            fix="report it to the package's makers, or lock another version",
            where=Where(file=archive.filename),
        ) from error


def wheel_layer(
    wheels: Sequence[WheelFile],
    venv: Venv,
    store: Store,
    *,
    title: str,
    left_out: Mapping[str, frozenset[str]] | None = None,
    packing: Packing = GZIP,
) -> Layer:
    """One layer with these wheels, in this order.

    `left_out` names, by wheel file, paths that another wheel of the layer brings later and therefore keeps.
    """
    skipped = {name: paths for name, paths in (left_out or {}).items() if paths}
    key = f"wheels into {venv.root} python {venv.python} rules {install.LAYOUT}; " + " ".join(
        str(wheel.sha256) for wheel in wheels
    )
    if skipped:
        key += "; without " + repr(sorted((name, sorted(paths)) for name, paths in skipped.items()))

    def fill(writer: LayerWriter) -> None:
        for wheel in wheels:
            with WheelArchive.open(wheel.path, filename=wheel.file) as archive:
                _splice(writer, archive, venv, skipped.get(wheel.file, frozenset()))

    return write_layer(store, title, fill, key=key, packing=packing)


def skeleton_layer(venv: Venv, base_python: str, store: Store, packing: Packing = GZIP) -> Layer:
    """The environment itself: pyvenv.cfg and the interpreter's links."""
    root = venv.root.lstrip("/")

    def fill(writer: LayerWriter) -> None:
        for folder in ("", "/bin", "/lib", f"/lib/python{venv.python}", f"/{venv.site_packages}"):
            writer.directory(root + folder)
        for item in install.skeleton(venv, base_python):
            if item.link is not None:
                writer.symlink(f"{root}/{item.path}", item.link)
            else:
                writer.content(f"{root}/{item.path}", item.content or b"", mode=0o644, compress=False)

    key = f"environment {venv.root} python {venv.python} on {base_python} rules {install.SKELETON_LAYOUT}"
    return write_layer(store, f"environment for Python {venv.python}", fill, key=key, packing=packing)


def _splice(writer: LayerWriter, archive: WheelArchive, venv: Venv, left_out: frozenset[str]) -> None:
    root = venv.root.lstrip("/")
    members = {member.name: member for member in archive.members}
    for item in placed_files(archive, venv):
        if item.path in left_out:
            continue
        path = f"{root}/{item.path}"
        mode = 0o755 if item.executable else 0o644
        writer.directory(root)
        writer.parents(path, below=root)
        if item.member is None:
            writer.content(path, item.content or b"", mode=mode, compress=False)
        else:
            _member(writer, archive, members[item.member], path, mode)


def _member(writer: LayerWriter, archive: WheelArchive, member: Member, path: str, mode: int) -> None:
    """`WheelArchive.stream` lets only streams pass that end where the member ends, so the copy is one gzip member."""
    writer.spliced(
        path,
        mode=mode,
        size=member.size,
        crc32=member.crc32,
        plain=archive.stream(member, chunk=_PIECE),
        stream=lambda: (
            archive.copied(member, chunk=_PIECE) if member.method == DEFLATED else _reencoded(archive, member)
        ),
    )


def _reencoded(archive: WheelArchive, member: Member) -> Iterator[bytes]:
    """The member as stored blocks: no compressor, so no dependence on one."""
    left = member.size
    for piece in archive.stream(member, chunk=_STORED_PIECE):
        left -= len(piece)
        yield from gzipstream.stored_blocks(piece, final=not left)
