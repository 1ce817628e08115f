"""Reads a source: a file, or an https URL."""

from __future__ import annotations

from pathlib import Path

import httpx

from builder.errors import BadInput, OutsideFailed

__all__ = ["read_source"]

_LIMIT = 64 * 1024 * 1024
"""Bytes; the largest source (an index page) is below 4 MiB."""


def read_source(place: str, *, offline: bool = False, client: httpx.Client | None = None) -> str:
    """The text at a path or URL; `BadInput` for a missing file, `OutsideFailed` when the network fails."""
    if not place.startswith("https://"):
        if "://" in place:
            raise BadInput(f"{place}: only https and files are read", fix="an https URL, or a downloaded file")
        path = Path(place)
        if not path.is_file():
            raise BadInput(f"{path} is not a file", fix="a path, or an https URL")
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is not UTF-8 text", why=str(error), fix="the source itself, unpacked") from error
    if offline:
        raise OutsideFailed(f"{place} is not read with --offline", fix="download it, and give the file")
    try:
        with client or httpx.Client(follow_redirects=True, timeout=60) as session:
            response = session.get(place, headers={"Accept": "application/vnd.pypi.simple.v1+json, */*;q=0.5"})
            response.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OutsideFailed(f"cannot read {place}", why=str(error), fix="try again, or give a file") from error
    if len(response.content) > _LIMIT:
        raise OutsideFailed(f"{place} is {len(response.content)} bytes long", why=f"more than {_LIMIT}")
    return response.text
