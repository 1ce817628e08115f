"""The commands as processes: streams, exit codes, and documents held against the published schemas."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.names import parse_ref
from builder.node import load_node_classes
from builder.registry import Layout, Manifest, open_repository
from builder.registry.values import Repository
from builder.release.sbom import sbom_draft
from builder.release.statements import audit_draft, proof_draft, smoke_draft
from tests.conftest import RunBuilder
from tests.registry.samples import image
from tests.release import samples
from tests.schemas import document, error

CLASS = next(node.name for node in load_node_classes() if node.backend == "cpu")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "dist")


@pytest.fixture(params=["oci:published", pytest.param("registry", marks=pytest.mark.registry)])
def place(request: pytest.FixtureRequest, repository_name: str) -> str:
    """Where to publish: a layout beside the project, and the real registry."""
    if request.param == "registry":
        return f"{request.getfixturevalue('registry_host')}/{repository_name}"
    return str(request.param)


def built(layout: Layout, folder: Path, text: str, tag: str) -> Manifest:
    """An image as a build leaves it, with its evidence in files."""
    made = image(layout, text=text, tag=tag)
    drafts = {
        "sbom": sbom_draft(samples.lock(), image=made.digest, name="demo", version="1", licences={}),
        "audit": audit_draft(samples.audit(), image=made.digest, name="demo"),
        "smoke": smoke_draft(samples.smoke(made.digest, node_class=CLASS), name="demo"),
        "proof": proof_draft(samples.proof(made.digest, node_class=CLASS), name="demo"),
    }
    for name, draft in drafts.items():
        (folder / f"{tag}.{name}.json").write_bytes(draft.content)
    return made


def evidence_options(tag: str) -> list[str]:
    return [word for name in ("sbom", "audit", "smoke", "proof") for word in (f"--{name}", f"{tag}.{name}.json")]


def opened(place: str, folder: Path) -> Repository:
    ref = place.replace("oci:", f"oci:{folder}/")
    return open_repository(parse_ref(ref), environ={}, reporter=SilentReporter())


def test_from_a_build_to_a_node_and_back(run_builder: RunBuilder, layout: Layout, tmp_path: Path, place: str) -> None:
    one = built(layout, tmp_path, "one", "1.0-cpu")
    two = built(layout, tmp_path, "two", "1.1-cpu")
    for tag in ("1.0-cpu", "1.1-cpu"):
        done = run_builder("publish", f"oci:dist:{tag}", "--to", place, *evidence_options(tag), "--json")
        found = document(done, "publish")
        assert (done.returncode, found["verdict"], found["tags"]) == (0, "published", [tag])
        assert sorted(piece["kind"] for piece in found["evidence"]) == ["audit", "proof", "sbom", "smoke"]
    again = document(run_builder("publish", "oci:dist:1.0-cpu", "--to", place, "--json"), "publish")
    assert (again["verdict"], again["sent_blobs"]) == ("adopted", 0)

    for tag, made, previous in (("1.0-cpu", one, None), ("1.1-cpu", two, str(one.digest))):
        done = run_builder("promote", f"{place}:{tag}", "--node-class", CLASS, "--json")
        found = document(done, "promote")
        assert (found["verdict"], found["digest"], found["previous"]) == ("promoted", str(made.digest), previous)
        assert sorted(piece["kind"] for piece in found["evidence"]) == ["audit", "promotion", "proof", "smoke"]
    same = document(run_builder("promote", f"{place}:1.1-cpu", "--node-class", CLASS, "--json"), "promote")
    assert same["verdict"] == "unchanged"

    picked = run_builder("pick", place, "--node-class", CLASS)
    assert (picked.returncode, picked.stdout, picked.stderr) == (0, f"{two.digest}\n", "")
    assert document(run_builder("pick", place, "--node-class", CLASS, "--json"), "pick")["digest"] == str(two.digest)

    back = document(run_builder("rollback", place, "--node-class", CLASS, "--json"), "rollback")
    assert (back["digest"], back["previous"]) == (str(one.digest), str(two.digest))
    assert opened(place, tmp_path).manifest(CLASS) == one
    end = run_builder("rollback", place, "--node-class", CLASS, "--json")
    assert (end.returncode, document(end, "rollback")["verdict"]) == (1, "refused")

    listed = document(run_builder("images", place, "--json"), "images")
    tags = {row["digest"]: row["tags"] for row in listed["images"]}
    assert tags == {str(one.digest): ["1.0-cpu", CLASS], str(two.digest): ["1.1-cpu"]}
    text = run_builder("images", place)
    assert f"1.0-cpu, {CLASS}  {one.digest}" in text.stdout
    assert "smoke     passed" in text.stdout


def test_promotion_refused_lists_what_is_missing(run_builder: RunBuilder, layout: Layout) -> None:
    made = image(layout, tag="1.0-cpu")
    done = run_builder("promote", "oci:dist:1.0-cpu", "--node-class", CLASS, "--json")
    found = document(done, "promote")
    assert (done.returncode, found["verdict"], found["kind"]) == (1, "refused", "promotion-refused")
    assert [item["need"] for item in found["missing"]] == ["smoke", "audit", "proof"]
    assert found["digest"] == str(made.digest)
    text = run_builder("promote", "oci:dist:1.0-cpu", "--node-class", CLASS)
    assert (text.returncode, text.stdout) == (1, "")
    assert "no smoke report of class" in text.stderr
    assert "fix:" in text.stderr


def test_a_taken_version_is_refused(run_builder: RunBuilder, layout: Layout) -> None:
    image(layout, text="one", tag="one")
    image(layout, text="two", tag="two")
    assert run_builder("publish", "oci:dist:one", "--to", "oci:published:1.0").returncode == 0
    done = run_builder("publish", "oci:dist:two", "--to", "oci:published:1.0", "--json")
    found = document(done, "publish")
    assert (done.returncode, found["verdict"], found["kind"]) == (1, "refused", "tag-taken")


def test_the_digest_to_replace_can_be_held_to(run_builder: RunBuilder, layout: Layout, tmp_path: Path) -> None:
    made = built(layout, tmp_path, "one", "1.0-cpu")
    run_builder("publish", "oci:dist:1.0-cpu", "--to", "oci:dist", *evidence_options("1.0-cpu"))
    done = run_builder("promote", "oci:dist:1.0-cpu", "--node-class", CLASS, "--expect", str(made.digest), "--json")
    found = document(done, "promote")
    assert (done.returncode, found["kind"]) == (1, "tag-moved")


def test_nothing_to_pick(run_builder: RunBuilder, layout: Layout) -> None:
    image(layout, tag="1.0-cpu")
    done = run_builder("pick", "oci:dist", "--node-class", CLASS, "--json")
    assert (done.returncode, document(done, "pick")["verdict"]) == (1, "refused")
    text = run_builder("pick", "oci:dist", "--node-class", CLASS)
    assert (text.returncode, text.stdout) == (1, "")


def test_an_empty_repository(run_builder: RunBuilder) -> None:
    done = run_builder("images", "oci:none", "--json")
    assert (done.returncode, document(done, "images")["verdict"]) == (0, "empty")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["promote", "oci:dist:1.0-cqu", "--node-class", CLASS], "there is no image oci:dist:1.0-cqu"),
        (["promote", "oci:dist:1.0-cpu", "--node-class", "cpu-x86-64-v33"], "unknown node class"),
        (["promote", "oci:dist:1.0-cpu", "--node-class", CLASS, "--require", "smok"], "unknown requirement"),
        (["promote", "oci:dist:1.0-cpu", "--node-class", CLASS, "--expect", "latest"], "not a digest"),
        (["promote", "app:1.0", "--node-class", CLASS], "not an image reference"),
        (["rollback", "oci:dist:1.0-cpu", "--node-class", CLASS], "not a repository"),
        (["pick", "oci:dist:1.0-cpu", "--node-class", CLASS], "not a repository"),
        (["images", "oci:dist:1.0-cpu"], "not a repository"),
        (["publish", "oci:dist", "--to", "oci:out"], "no tag to publish"),
        (["publish", "oci:dist:1.0-cpu", "--to", "oci:out:1", "--smoke", "notes.json"], "notes.json is not the smoke"),
        (["publish", "oci:dist:1.0-cpu", "--to", "oci:out:1", "--sbom", "none.json"], "cannot read none.json"),
    ],
)
def test_a_wrong_question_is_exit_2(
    run_builder: RunBuilder, layout: Layout, tmp_path: Path, arguments: list[str], what: str
) -> None:
    image(layout, tag="1.0-cpu")
    (tmp_path / "notes.json").write_text(json.dumps({"a": 1}))
    found = error(run_builder(*arguments, "--json"), 2)
    assert what in found["what"]
    assert found["fix"] or found["why"]


def test_which_image_of_several(run_builder: RunBuilder, layout: Layout) -> None:
    image(layout, text="one", tag="one")
    image(layout, text="two", tag="two")
    found = error(run_builder("publish", "oci:dist", "--to", "oci:out:1", "--json"), 2)
    assert found["why"] == "its tags are one, two"


def test_an_unreachable_registry_is_exit_3(run_builder: RunBuilder) -> None:
    found = error(run_builder("images", "127.0.0.1:9/app", "--json"), 3)
    assert found["kind"] == "registry-unreachable"
    offline = error(run_builder("images", "registry.invalid/app", "--offline", "--json"), 3)
    assert offline["kind"] == "offline"


def test_this_machine_is_the_default_class(run_builder: RunBuilder, layout: Layout) -> None:
    image(layout, tag="1.0-cpu")
    done = run_builder("pick", "oci:dist", "--json", env={"BUILDER_NODE_NAME": "my-pool"})
    assert document(done, "pick")["node_class"] == "my-pool"
