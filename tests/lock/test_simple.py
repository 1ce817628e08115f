"""Index pages of every kind."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from builder.lock.simple import Link, Pages, parse_html, parse_json
from builder.wheels.settings import IndexSettings
from builder.wheels.transport import IndexUnreachable, open_client
from tests.lock.indexes import Index, make_wheel, serving

HASH = "a" * 64


def test_html_links_with_relative_addresses_and_fragments() -> None:
    page = f"""<html><body>
      <a href="../../files/a-1%2Bcpu-py3-none-any.whl#sha256={HASH}" data-core-metadata="sha256={"b" * 64}">a</a>
      <a href="https://else.where/a-2-py3-none-any.whl">a</a><a>no target</a><a href="#top">top</a></body></html>"""
    assert parse_html(page, "https://host/simple/a/") == (
        Link(
            file="a-1+cpu-py3-none-any.whl",
            url="https://host/files/a-1%2Bcpu-py3-none-any.whl",
            sha256=HASH,
            dated=False,
        ),
        Link(file="a-2-py3-none-any.whl", url="https://else.where/a-2-py3-none-any.whl", sha256=None, dated=False),
    )


def test_a_base_element_moves_relative_links() -> None:
    (link,) = parse_html('<base href="https://cdn/x/"><a href="a-1-py3-none-any.whl">a</a>', "https://host/simple/a/")
    assert link.url == "https://cdn/x/a-1-py3-none-any.whl"


def test_json_gives_hash_and_upload_time() -> None:
    page = {
        "files": [
            {"filename": "a-1-py3-none-any.whl", "url": "/f/a", "hashes": {"sha256": HASH}, "upload-time": "2026"},
            {"filename": "a-2-py3-none-any.whl", "url": "/f/b", "hashes": {}, "core-metadata": {"sha256": HASH}},
        ]
    }
    first, second = parse_json(page, "https://host/simple/a/")
    assert (first.sha256, first.dated, first.url) == (HASH, True, "https://host/f/a")
    assert (second.sha256, second.dated) == (None, False)


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(open_client(IndexSettings(), {"HOME": str(tmp_path)}))


@pytest.mark.parametrize("html", [True, False])
def test_pages_over_http_are_read_once(pages: Pages, tmp_path: Path, html: bool) -> None:
    with serving(Index(html=html)) as index:
        wheel = index.add(make_wheel(tmp_path, "a", "1.0"))
        (link,) = pages.project(index.url, "A")
        assert (link.file, link.url) == (wheel.name, index.file_url(wheel))
        assert link.dated is not html
        assert pages.project(index.url, "a") == (link,)
        assert pages.project(index.url, "nothing") == ()
        assert len(index.requests) == 2


def test_folders_and_file_indexes(pages: Pages, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "links", "a", "1.0+cpu")
    (tmp_path / "simple" / "a").mkdir(parents=True)
    (tmp_path / "simple" / "a" / "index.html").write_text(f'<a href="../../links/{wheel.name}">x</a>')
    (link,) = pages.location(str(wheel.parent))
    assert link.file == wheel.name
    assert pages.location(str(tmp_path / "missing")) == ()
    (link,) = pages.project((tmp_path / "simple").as_uri(), "a")
    assert link.url == f"file://{wheel}"
    assert pages.project((tmp_path / "simple").as_uri(), "b") == ()


def test_what_is_no_index_page_is_said(pages: Pages) -> None:
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, headers={"Content-Type": "application/json"}, content=b"{}")
    )
    strange = Pages(httpx.Client(transport=transport))
    with pytest.raises(IndexUnreachable, match="not an index page"):
        strange.project("https://host/simple", "a")
    with pytest.raises(IndexUnreachable):
        pages.project("http://127.0.0.1:9/simple", "a")


def test_offline_reads_what_lies_on_disk_alone(tmp_path: Path) -> None:
    pages = Pages(open_client(IndexSettings(), {}), offline=True)
    make_wheel(tmp_path, "a", "1.0")
    assert len(pages.location(str(tmp_path))) == 1
    with pytest.raises(IndexUnreachable, match="cannot reach"):
        pages.project("http://127.0.0.1:9/simple", "a")
