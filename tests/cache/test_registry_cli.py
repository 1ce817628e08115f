"""`builder cache push`, `pull` and `inspect` as a user calls them."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from builder.cache import EngineCache, Entry
from builder.events import SilentReporter
from builder.names import Digest, RegistryRef
from builder.registry.client import Remote
from builder.registry.layout import Layout
from builder.registry.values import Repository
from builder.release.evidence import attach, evidence
from builder.release.sbom import sbom_draft
from tests.cache.formats import samples as engines
from tests.cache.registry import image, kernels, plan, sign_pair
from tests.conftest import RunBuilder
from tests.release import samples
from tests.schemas import document, error

CLASS = "h100"


def with_sbom(repository: Repository) -> Digest:
    made = image(repository, tag="1.0")
    subject = repository.manifest(made)
    assert subject is not None
    draft = sbom_draft(samples.lock(), image=made, name="demo", version="1", licences={})
    attach(repository, subject.descriptor, [draft])
    return made


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """An image with a bill of materials, in the layout `dist`."""
    made = Layout(tmp_path / "dist")
    with_sbom(made)
    return made


@pytest.fixture
def entries(tmp_path: Path) -> list[Entry]:
    """A plan and a Triton cache in the cache `ours`; keys in `keys`."""
    sign_pair(tmp_path / "keys")
    sign_pair(tmp_path / "keys", "stranger")
    cache = EngineCache(tmp_path / "ours")
    return [
        plan(cache, tmp_path / "plans", b"plan" * 1000),
        kernels(cache, tmp_path / "triton", {"a/k.cubin": b"code" * 1000}),
    ]


PUSH = ("--node-class", CLASS, "--sign-key", "keys/ours.pem", "--cache", "ours")
PULL = ("--node-class", CLASS, "--key", "keys/ours.pub", "--cache", "theirs")


@pytest.mark.registry
def test_from_one_machine_to_another_through_a_registry(
    registry_host: str, entries: list[Entry], run_builder: RunBuilder, tmp_path: Path
) -> None:
    reference = RegistryRef(registry_host, f"cache/{uuid.uuid4().hex[:12]}", "1.0")
    remote = Remote.open(reference, environ={}, reporter=SilentReporter())
    made = with_sbom(remote)
    pushed = document(
        run_builder("cache", "push", str(reference), *PUSH, "--model", str(Digest.of(b"model")), "--json"), "cache-push"
    )
    assert pushed["verdict"] == "pushed"
    assert {one["key"] for one in pushed["engines"]} == {str(entry.digest) for entry in entries}
    bills = [piece for piece in evidence(remote, made) if piece.kind == "sbom"]
    assert str(max(bills, key=lambda piece: json.loads(piece.content)["version"]).digest) == pushed["sbom"]
    would = document(run_builder("cache", "pull", str(reference), *PULL, "--dry-run", "--json"), "cache-pull")
    assert (would["verdict"], {one["verdict"] for one in would["engines"]}) == ("missing", {"missing"})
    assert not (tmp_path / "theirs").exists()
    done = document(run_builder("cache", "pull", str(reference), *PULL, "--json"), "cache-pull")
    assert (done["verdict"], done["refused"]) == ("pulled", [])
    assert {one["signers"][0] for one in done["engines"]} == {"ours.pub"}
    assert sum(one["bytes"] for one in done["engines"]) == sum(one["bytes"] for one in would["engines"]) > 8000
    again = document(run_builder("cache", "pull", str(reference), *PULL, "--json"), "cache-pull")
    assert (again["verdict"], [one["bytes"] for one in again["engines"]]) == ("there", [0, 0])
    assert EngineCache(tmp_path / "theirs").lookup(entries[0].key).verdict == "hit"
    remote.close()


def test_what_a_stranger_signed_is_refused_by_name(
    layout: Layout, entries: list[Entry], run_builder: RunBuilder, tmp_path: Path
) -> None:
    stranger = ("--node-class", CLASS, "--sign-key", "keys/stranger.pem", "--cache", "ours", "--no-sbom")
    run_builder("cache", "push", "oci:dist:1.0", *stranger, "--kind", "tensorrt")
    refused = run_builder("cache", "pull", "oci:dist:1.0", *PULL, "--json")
    assert refused.returncode == 1
    found = document(refused, "cache-pull")
    assert (found["verdict"], found["engines"]) == ("refused", [])
    assert found["refused"][0]["key"] == str(entries[0].digest)
    assert found["refused"][0]["why"] == "it is signed by none of the given keys"
    run_builder("cache", "push", "oci:dist:1.0", *PUSH, "--kind", "triton-nvidia")
    mixed = document(run_builder("cache", "pull", "oci:dist:1.0", *PULL, "--json"), "cache-pull")
    assert (mixed["verdict"], len(mixed["engines"]), len(mixed["refused"])) == ("pulled", 1, 1)
    assert [entry for entry in EngineCache(tmp_path / "theirs").entries() if isinstance(entry, Entry)] == [entries[1]]
    text = run_builder("cache", "pull", "oci:dist:1.0", *PULL).stdout
    assert f"refused: tensorrt {entries[0].digest}: it is signed by none of the given keys" in text


def test_a_damaged_engine_is_refused_and_the_others_go_on(
    layout: Layout, entries: list[Entry], run_builder: RunBuilder
) -> None:
    model = str(Digest.of(b"model"))
    assert run_builder("cache", "push", "oci:dist:1.0", *PUSH, "--model", model).returncode == 0
    for path in (layout.path / "blobs" / "sha256").iterdir():
        if path.read_bytes() == b"plan" * 1000:
            path.chmod(0o644)
            path.write_bytes(b"evil" * 1000)
    found = document(run_builder("cache", "pull", "oci:dist:1.0", *PULL, "--json"), "cache-pull")
    assert (found["verdict"], [one["kind"] for one in found["engines"]]) == ("pulled", ["triton-nvidia"])
    assert [one["key"] for one in found["refused"]] == [str(entries[0].digest)]
    one = ("--entry", entries[1].digest.hex[:10], "--dry-run", "--json")
    named = document(run_builder("cache", "pull", "oci:dist:1.0", *PULL, *one), "cache-pull")
    assert [item["key"] for item in named["engines"]] == [str(entries[1].digest)]


def test_the_list_of_images_names_engines_shortly(
    layout: Layout, entries: list[Entry], run_builder: RunBuilder
) -> None:
    run_builder("cache", "push", "oci:dist:1.0", *PUSH, "--kind", "tensorrt", "--no-sbom")
    text = run_builder("images", "oci:dist").stdout
    assert text.splitlines()[1].split() == ["other", "tensorrt", CLASS]


def test_pushing_again_is_there_and_changes_nothing(
    layout: Layout, entries: list[Entry], run_builder: RunBuilder
) -> None:
    name = entries[0].digest.hex[:12]
    first = document(run_builder("cache", "push", "oci:dist:1.0", *PUSH, "--entry", name, "--json"), "cache-push")
    again = document(run_builder("cache", "push", "oci:dist:1.0", *PUSH, "--entry", name, "--json"), "cache-push")
    assert first["engines"][0]["key"] == str(entries[0].digest)
    assert (again["verdict"], again["sent_blobs"], again["sbom"]) == ("there", 0, None)
    assert again["engines"][0]["manifest"] == first["engines"][0]["manifest"]


def test_the_key_may_come_from_the_environment(layout: Layout, entries: list[Entry], run_builder: RunBuilder) -> None:
    arguments = ("--node-class", CLASS, "--cache", "ours", "--kind", "tensorrt")
    done = run_builder(
        "cache", "push", "oci:dist:1.0", *arguments, "--model-name", "llama", env={"BUILDER_SIGN_KEY": "keys/ours.pem"}
    )
    assert done.returncode == 0, done.stderr
    pull = ("--node-class", CLASS, "--cache", "theirs")
    pulled = run_builder("cache", "pull", "oci:dist:1.0", *pull, env={"BUILDER_KEYS": "keys/ours.pub"})
    assert pulled.stdout.startswith("fetched: tensorrt ")
    newest = max(
        (json.loads(piece.content) for piece in evidence(layout, layout_image(layout)) if piece.kind == "sbom"),
        key=lambda value: int(value["version"]),
    )
    assert "llama" in {component["name"] for component in newest["components"]}


def layout_image(layout: Layout) -> Digest:
    found = layout.resolve("1.0")
    assert found is not None
    return found.digest


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        ((*PUSH,), "which engines are meant?", "--kind, --model or --entry"),
        ((*PUSH, "--kind", "tensort"), "unknown engine kind 'tensort'", "'tensorrt'"),
        ((*PUSH, "--kind", "neff"), "holds no such engine", "builder cache list"),
        ((*PUSH, "--entry", "ffffffffffff"), "no engines have a key that starts with", ""),
        ((*PUSH[:3], "keys/ours.pub", *PUSH[4:], "--kind", "tensorrt"), "cannot read the private key", "private key"),
        (("--node-class", "h10", *PUSH[2:], "--kind", "tensorrt"), "unknown node class 'h10'", "'h100'"),
    ],
)
def test_what_cannot_be_pushed_is_said_with_the_mend(
    layout: Layout, entries: list[Entry], run_builder: RunBuilder, arguments: tuple[str, ...], what: str, fix: str
) -> None:
    found = error(run_builder("cache", "push", "oci:dist:1.0", *arguments, "--json"), 2)
    assert what in found["what"]
    assert fix in found["fix"]


def test_an_engine_for_another_class_is_refused(layout: Layout, entries: list[Entry], run_builder: RunBuilder) -> None:
    arguments = ("--node-class", "t4", *PUSH[2:], "--kind", "tensorrt", "--json")
    found = error(run_builder("cache", "push", "oci:dist:1.0", *arguments), 1)
    assert found["kind"] == "engine-not-for-node"
    assert "compute-capability is 9.0, the class has 7.5" in found["why"]


def test_a_pull_needs_a_key_and_says_when_there_is_nothing(
    layout: Layout, run_builder: RunBuilder, tmp_path: Path
) -> None:
    sign_pair(tmp_path / "keys")
    found = error(run_builder("cache", "pull", "oci:dist:1.0", "--node-class", CLASS, "--json"), 2)
    assert found["what"] == "no key to hold signatures against"
    nothing = run_builder("cache", "pull", "oci:dist:1.0", *PULL, "--json")
    assert nothing.returncode == 1
    assert document(nothing, "cache-pull")["verdict"] == "miss"


def test_an_engine_is_looked_at_without_being_loaded(run_builder: RunBuilder, tmp_path: Path) -> None:
    (tmp_path / "m.neff").write_bytes(engines.neff(features=0x1F))
    found = document(run_builder("cache", "inspect", "m.neff", "--json"), "cache-inspect")
    assert found["format"] == "neff"
    assert found["factors"] == {"neff": {"features": "0x1f", "neff-version": "2.0"}}
    assert "target" in found["unknown"]
    text = run_builder("cache", "inspect", "m.neff").stdout
    assert "features: 0x1f" in text
    assert "target: not said; " in text
    (tmp_path / "half.neff").write_bytes(engines.neff()[:500])
    broken = error(run_builder("cache", "inspect", "half.neff", "--json"), 2)
    assert (broken["kind"], broken["what"]) == ("broken-engine", "half.neff is damaged")
    other = error(run_builder("cache", "inspect", "m.neff", "--format", "nef", "--json"), 2)
    assert "'neff'" in other["fix"]


def test_what_does_not_suit_is_named_and_nothing_of_it_is_fetched(
    layout: Layout, run_builder: RunBuilder, tmp_path: Path
) -> None:
    sign_pair(tmp_path / "keys")
    cache = EngineCache(tmp_path / "ours")
    old = plan(cache, tmp_path / "plans", b"old plan" * 500, tensorrt="10.8.0.43")
    new = plan(cache, tmp_path / "plans", b"new plan" * 500, tensorrt="10.9.0.34")
    reference = f"oci:{tmp_path}/dist:1.0"
    assert run_builder("cache", "push", reference, *PUSH, "--kind", "tensorrt").returncode == 0
    options = (*PULL, "--kind", "tensorrt", "--set", "tensorrt=10.9.0.34")
    done = document(run_builder("cache", "pull", reference, *options, "--json"), "cache-pull")
    assert [one["key"] for one in done["engines"]] == [str(new.digest)]
    [left] = done["unsuited"]
    assert left["key"] == str(old.digest)
    assert [(one["property"], one["found"], one["wanted"]) for one in left["differs"]] == [
        ("tensorrt", "10.8.0.43", "10.9.0.34")
    ]
    theirs = EngineCache(tmp_path / "theirs")
    assert not theirs.store.has_part(old.content, old.size)
    none = run_builder("cache", "pull", reference, *PULL, "--kind", "tensorrt", "--set", "precision=int8")
    assert none.returncode == 1
    assert "precision is fp16, wanted int8" in none.stdout
    wrong = error(run_builder("cache", "pull", reference, *PULL, "--set", "tensorrt=10.9", "--json"), 2)
    assert (wrong["what"], wrong["fix"]) == ("--set without --kind", "add --kind KIND")
    wrong = error(run_builder("cache", "pull", reference, *PULL, "--kind", "tensorrt", "--set", "torch=1", "--json"), 2)
    assert wrong["what"] == "tensorrt engines have no property 'torch'"
