"""The digest of a model: its weights and configuration, wherever they lie."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from builder.cache.values import canonical_json
from builder.errors import BadInput
from builder.names import Digest

__all__ = ["model_digest"]


def model_digest(path: Path) -> Digest:
    """A file: the digest of its bytes. A folder: of the canonical JSON `{relative path: digest of its bytes, …}`.

    Links are followed, as model hubs lay weights out behind links; names that begin with a dot are left out, as they
    hold caches and the history of a repository. `BadInput` when there is nothing, or something cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return Digest.of_file(path)
        if not stat.S_ISDIR(mode):
            raise BadInput(
                f"{path} is no model", why="it is neither a file nor a folder", fix="name the weights, or their folder"
            )
        found = {name: str(Digest.of_file(path / name)) for name in _files(path)}
    except OSError as error:
        raise BadInput(
            f"cannot read {error.filename or path}",
            why=error.strerror or str(error),
            fix="check the path of the model's file or folder, or state its digest: sha256:…",
        ) from error
    if not found:
        raise BadInput(f"{path} is no model", why="there is no file in it", fix="name the weights, or their folder")
    return Digest.of(canonical_json(found))


def _files(root: Path) -> list[str]:
    found = []
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(folder).relative_to(root)
        found += [(inside / name).as_posix() for name in names if not name.startswith(".")]
    return sorted(found)
