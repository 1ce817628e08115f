"""Index pages: what an index or a find-links location offers (PEP 503, PEP 691, PEP 700, PEP 714)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx
from packaging.utils import canonicalize_name

from builder.wheels.settings import without_credentials
from builder.wheels.transport import IndexUnreachable, get

__all__ = ["Link", "Listing", "Pages", "is_sha256", "listing", "parse_html", "parse_json"]

_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_ROOT_LIMIT = 512 << 20
_PROJECT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Names of projects (core metadata, "Name")."""
_SHA256 = re.compile(r"(?:^|&)sha256=([0-9a-f]{64})(?:&|$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One file on a page."""

    file: str
    url: str
    sha256: str | None
    """Hex digest of the file itself. The digest of its metadata file (`data-core-metadata`) is another thing."""
    dated: bool
    """Whether the page says when it was uploaded."""
    yanked: bool = False
    """Whether its makers took it back: installers take it only when exactly this version is asked for (PEP 592)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What a page of unknown kind turns out to list: projects when it is an index's root, files otherwise."""

    projects: tuple[str, ...]
    """Normalised names, each once, in the page's order."""
    links: tuple[Link, ...]


def is_sha256(text: str) -> bool:
    """Whether a text is a SHA-256 in lower-case hex."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def listing(client: httpx.Client, url: str) -> Listing | None:
    """The page at `url`: the root of a simple index, the page of one project, or a find-links page; None when absent.

    Root pages list every project; those of the largest indexes take some hundred MiB, and more is refused.
    """
    response = get(client, url, accept=_ACCEPT, limit=_ROOT_LIMIT)
    if response is None:
        return None
    base = str(response.request.url)
    with _page_faults(url):
        if "json" in response.headers.get("Content-Type", ""):
            page = response.json()
            if "projects" in page:
                return Listing(projects=_names(str(entry["name"]) for entry in page["projects"]), links=())
            return Listing(projects=(), links=parse_json(page, base))
        links = parse_html(response.text, base)
        if any(link.file.endswith((".whl", ".tar.gz", ".zip")) for link in links):
            return Listing(projects=(), links=links)
        parser = _Anchors()
        parser.feed(response.text)
        folders = (urlsplit(href).path.rstrip("/").rpartition("/")[2] for href, _ in parser.anchors)
        return Listing(projects=_names(unquote(name) for name in folders), links=())


def _names(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(canonicalize_name(name) for name in found if _PROJECT.fullmatch(name)))


@contextmanager
def _page_faults(url: str) -> Iterator[None]:
    try:
        yield
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise IndexUnreachable(
            f"{without_credentials(url)} is not an index page", why=f"{type(error).__name__}: {error}"
        ) from error


class Pages:
    """Reads pages over HTTP and from disk; each page once."""

    def __init__(self, client: httpx.Client, *, offline: bool = False) -> None:
        self._client = client
        self._offline = offline
        self._seen: dict[tuple[str, str], tuple[Link, ...]] = {}

    def project(self, index: str, name: str) -> tuple[Link, ...]:
        """Files of one project; empty when the index has no such project.

        Raises `IndexUnreachable` when the index does not answer, and always for a remote one when offline.
        """
        normal = canonicalize_name(name)
        if (index, normal) not in self._seen:
            self._seen[index, normal] = self._page(f"{index.rstrip('/')}/{normal}/")
        return self._seen[index, normal]

    def location(self, find_links: str) -> tuple[Link, ...]:
        """Files of a find-links folder or page. A folder that is not there offers nothing, as in pip."""
        if (find_links, "") not in self._seen:
            path = Path(find_links)
            self._seen[find_links, ""] = (
                self._page(find_links) if "://" in find_links else _folder(path) if path.is_dir() else ()
            )
        return self._seen[find_links, ""]

    def _page(self, url: str) -> tuple[Link, ...]:
        parts = urlsplit(url)
        if parts.scheme == "file":
            path = Path(unquote(parts.path))
            page = path / "index.html" if path.is_dir() else path
            return parse_html(page.read_text(encoding="utf-8"), url) if page.is_file() else ()
        if self._offline:
            raise IndexUnreachable(
                f"cannot reach {without_credentials(url)}",
                why="--offline keeps off the network",
                fix="run once without --offline, or name wheel files or a lock instead of a requirement",
            )
        response = get(self._client, url, accept=_ACCEPT)
        if response is None:
            return ()
        with _page_faults(url):
            if "json" in response.headers.get("Content-Type", ""):
                return parse_json(response.json(), str(response.request.url))
            return parse_html(response.text, str(response.request.url))


def parse_json(page: Any, base: str) -> tuple[Link, ...]:
    """Files of a PEP 691 page; `base` is the page's own URL."""
    return tuple(
        Link(
            file=str(entry["filename"]),
            url=urljoin(base, str(entry["url"])),
            sha256=entry.get("hashes", {}).get("sha256"),
            dated=bool(entry.get("upload-time")),
            yanked=entry.get("yanked", False) is not False,
        )
        for entry in page["files"]
    )


def parse_html(text: str, base: str) -> tuple[Link, ...]:
    """Files of a PEP 503 page; `base` is the page's own URL."""
    parser = _Anchors()
    parser.feed(text)
    links: list[Link] = []
    for href, yanked in parser.anchors:
        url = urljoin(parser.base or base, href)
        bare, _, fragment = url.partition("#")
        file = unquote(urlsplit(bare).path.rpartition("/")[2])
        if file:
            match = _SHA256.search(fragment)
            links.append(Link(file=file, url=bare, sha256=match[1] if match else None, dated=False, yanked=yanked))
    return tuple(links)


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[tuple[str, bool]] = []
        """Target of a link, and whether its file is yanked."""
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if tag == "a" and href:
            self.anchors.append((href, "data-yanked" in values))
        elif tag == "base" and href and not self.base:
            self.base = href


def _folder(path: Path) -> tuple[Link, ...]:
    return tuple(
        Link(file=wheel.name, url=wheel.absolute().as_uri(), sha256=None, dated=False)
        for wheel in sorted(path.glob("*.whl"))
    )
