"""What audits saw, pushed to a registry by one machine and pulled by another."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from builder.audit.audit import load_rules
from builder.audit.exchange import Exchanged, pull_facts, push_facts
from builder.events import SilentReporter
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json
from builder.registry.values import Manifest
from builder.store import Store
from tests import schemas
from tests.audit.inside import Inside
from tests.lock.indexes import Index, make_wheel, serving


@pytest.mark.parametrize("place", ["registry", "layout"])
def test_two_machines_push_and_a_third_judges_without_fetching(
    builder: Inside, tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    host = request.getfixturevalue("registry_host") if place == "registry" else ""
    ref = f"{host}/audit/facts-{tmp_path.name.lower()}" if host else f"oci:{tmp_path / 'facts'}"

    def on(machine: str, *arguments: str | Path) -> Any:
        return builder(*arguments, env={"BUILDER_STORE": str(tmp_path / machine)})

    nothing = on("third", "audit", "pull", ref, "--missing-ok", "--json")
    assert schemas.document(nothing, "audit-pull")["verdict"] == "absent"
    with serving(Index()) as index:
        for number in range(6):
            index.add(make_wheel(tmp_path / "w", f"p{number}", "1.0"))
        url = f"{index.url}/"
        for number, machine in ((1, "one"), (2, "two")):
            arguments = ("--backend", "cpu", "--shard", f"{number}/2", "--results", tmp_path / machine / "r")
            assert on(machine, "audit", url, *arguments).returncode == 0
            pushed = schemas.document(on(machine, "audit", "push", ref, "--json"), "audit-push")
            assert pushed["verdict"] == "pushed"
        assert pushed["wheels"] == 6
        assert pushed["ref"].endswith(f":{load_rules().scanner.kind}")
        again = schemas.document(on("two", "audit", "push", ref, "--json"), "audit-push")
        assert (again["verdict"], again["sent_bytes"], again["digest"]) == ("present", 0, pushed["digest"])
        pulled = schemas.document(on("third", "audit", "pull", ref, "--json"), "audit-pull")
        assert (pulled["verdict"], pulled["wheels"], pulled["taken"]) == ("pulled", 6, 6)
        assert pulled["digest"] == pushed["digest"]
        index.requests.clear()
        swept = on("third", "audit", url, "--backend", "rocm", "--results", tmp_path / "r", "--json")
        assert schemas.document(swept, "audit-sweep")["levels"]["ok"] == 6
        assert [path for path, _ in index.requests if "/files/" in path] == []


def test_an_artefact_of_other_tables_or_of_something_else(builder: Inside, tmp_path: Path) -> None:
    assert builder("audit", "push", f"oci:{tmp_path / 'l'}", "--json").returncode == 2  # an empty store
    wheel = make_wheel(tmp_path, "p", "1.0")
    builder("audit", wheel, "--backend", "cpu")
    builder("audit", "push", f"oci:{tmp_path / 'l'}:t")
    layout = Layout(tmp_path / "l")
    manifest = layout.manifest("t")
    assert manifest is not None
    value = json.loads(manifest.raw)
    value["annotations"]["dev.builder.audit-facts"] = "audit-facts-0-other"
    layout.put_manifest(Manifest(manifest.media_type, canonical_json(value)), tag="old")
    found = schemas.error(builder("audit", "pull", f"oci:{tmp_path / 'l'}:old", "--json"), 2)
    assert "other tables" in found["what"]
    value["artifactType"] = "application/vnd.other"
    layout.put_manifest(Manifest(manifest.media_type, canonical_json(value)), tag="other")
    found = schemas.error(builder("audit", "pull", f"oci:{tmp_path / 'l'}:other", "--json"), 2)
    assert "holds no facts" in found["what"]
    found = schemas.error(builder("audit", "pull", f"oci:{tmp_path / 'l'}:absent", "--json"), 2)
    assert "no tag 'absent'" in found["what"]


def test_a_layer_with_anything_else_in_it_is_refused(builder: Inside, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "p", "1.0")
    builder("audit", wheel, "--backend", "cpu")
    (kept,) = (tmp_path / "store/derived").glob("audit-facts-*/*.json")
    kept.write_text('{"name": "p"}')
    builder("audit", "push", f"oci:{tmp_path / 'l'}:t")
    env = {"BUILDER_STORE": str(tmp_path / "fresh")}
    found = schemas.error(builder("audit", "pull", f"oci:{tmp_path / 'l'}:t", "--json", env=env), 3)
    assert "cannot be read" in found["why"]
    assert list((tmp_path / "fresh").rglob("*.json")) == []


def test_pushes_that_meet_lose_nothing(builder: Inside, tmp_path: Path) -> None:
    stores = [tmp_path / f"store{number}" for number in range(4)]
    for number, root in enumerate(stores):
        made = make_wheel(tmp_path, f"p{number}", "1.0")
        builder("audit", made, "--backend", "cpu", env={"BUILDER_STORE": str(root)})
    start = threading.Barrier(len(stores))

    def push(root: Path) -> Exchanged:
        start.wait()
        return push_facts(Layout(tmp_path / "l"), "t", store=Store(root), reporter=SilentReporter())

    with ThreadPoolExecutor(len(stores)) as pool:
        done = list(pool.map(push, stores))
    assert max(item.wheels for item in done) == len(stores)
    pulled = pull_facts(Layout(tmp_path / "l"), "t", store=Store(tmp_path / "fresh"), reporter=SilentReporter())
    assert pulled.taken == len(stores)
