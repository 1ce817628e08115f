from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import BadInput
from builder.names import Digest, LayoutRef, Platform, RegistryRef, parse_backend, parse_ref, parse_tag

HEX = "0123456789abcdef" * 4
AT = f"@sha256:{HEX}"


def test_a_digest_prints_itself_back() -> None:
    digest = Digest.parse(f"sha256:{HEX}")
    assert str(digest) == f"sha256:{HEX}"
    assert digest == Digest(HEX)


@pytest.mark.parametrize(
    "text", ["", HEX, f"sha512:{HEX}", "sha256:" + HEX.upper(), f"sha256:{HEX}0", f"sha256:{HEX}\n"]
)
def test_what_is_not_a_digest_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="not a digest"):
        Digest.parse(text)


@given(st.binary())
def test_the_digest_of_bytes_is_their_sha256(data: bytes) -> None:
    assert Digest.of(data).hex == hashlib.sha256(data).hexdigest()


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 300_000)
    assert Digest.of_file(path) == Digest.of(b"x" * 300_000)


def test_platforms_use_the_names_of_oci() -> None:
    assert [str(Platform("x86_64")), str(Platform("aarch64"))] == ["linux/amd64", "linux/arm64"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:5000/a", RegistryRef("localhost:5000", "a")),
        ("localhost/a/b:1.0_x", RegistryRef("localhost", "a/b", "1.0_x")),
        ("registry.example.org/team/app:1" + AT, RegistryRef("registry.example.org", "team/app", "1", Digest(HEX))),
        ("[::1]:5000/a" + AT, RegistryRef("[::1]:5000", "a", None, Digest(HEX))),
        ("oci:out", LayoutRef(Path("out"))),
        ("oci:out:v1", LayoutRef(Path("out"), "v1")),
        ("oci:/a/b:c/d", LayoutRef(Path("/a/b:c/d"))),
        ("oci:out:v1" + AT, LayoutRef(Path("out"), "v1", Digest(HEX))),
        ("oci:out" + AT, LayoutRef(Path("out"), None, Digest(HEX))),
    ],
)
def test_references_parse_and_print_themselves_back(text: str, expected: RegistryRef | LayoutRef) -> None:
    assert parse_ref(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not an image reference"),
        ("oci:", "not an image reference"),
        ("app:1.0", "not an image reference"),
        ("team/app:1.0", "without a registry"),
        ("localhost:5000/App", "not an image reference"),
        ("localhost:5000/a:" + "x" * 129, "not an image reference"),
        ("https://registry.example.org/a", "not an image reference"),
        ("localhost:5000/a@sha256:12", "not an image reference"),
        ("localhost:5000/../a", "not an image reference"),
        ("oci:out:.hidden", "not a tag"),
    ],
)
def test_what_is_not_a_reference_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_ref(text)


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", fullmatch=True))
def test_every_legal_tag_survives_a_reference(tag: str) -> None:
    reference = parse_ref(f"localhost:5000/a:{tag}")
    assert reference.tag == parse_tag(tag) == tag


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_bad_input(text: str) -> None:
    try:
        reference = parse_ref(text)
    except BadInput:
        return
    if isinstance(reference, RegistryRef):
        assert str(reference) == text


def test_a_local_version_is_no_tag_and_the_message_says_how_to_write_it() -> None:
    with pytest.raises(BadInput, match="not a tag") as caught:
        parse_tag("1.0+cpu")
    assert "'+'" in caught.value.fix


def test_retagging_drops_the_digest_and_pinning_drops_the_tag() -> None:
    reference = RegistryRef("localhost:5000", "a", "old", Digest(HEX))
    assert str(reference.with_tag("new")) == "localhost:5000/a:new"
    assert str(reference.with_digest(Digest(HEX))) == f"localhost:5000/a@sha256:{HEX}"


def test_an_unknown_backend_gets_a_hint() -> None:
    with pytest.raises(BadInput, match="unknown backend 'cudaa'"):
        parse_backend("cudaa")
