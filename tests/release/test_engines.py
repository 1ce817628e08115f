"""Engines in the bill of materials: valid CycloneDX, with a pedigree to the model, signed, and one version further."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from builder.cache import EngineCache, Entry
from builder.errors import BadInput
from builder.events import SilentReporter
from builder.names import Digest
from builder.registry.layout import Layout
from builder.registry.values import Repository
from builder.release.engines import enter_engines, with_engines
from builder.release.evidence import attach, evidence
from builder.release.sbom import sbom_draft
from builder.release.verify import verify
from tests.cache.registry import image as bare_image
from tests.cache.registry import kernels, plan, sign_pair
from tests.release import samples
from tests.release.test_verify import whole

IMAGE = Digest.of(b"image")


def bill(image: Digest = IMAGE) -> bytes:
    return sbom_draft(samples.lock(), image=image, name="demo", version="1.0", licences={}).content


@pytest.fixture
def engines(tmp_path: Path) -> list[Entry]:
    cache = EngineCache(tmp_path / "cache")
    return [
        plan(cache, tmp_path / "plans", b"one plan", model=b"llama"),
        kernels(cache, tmp_path / "triton", {"a/k.cubin": b"code"}, model=b"llama"),
    ]


def components(content: bytes) -> dict[str, dict[str, Any]]:
    return {item["bom-ref"]: item for item in json.loads(content)["components"]}


def test_engines_and_their_model_are_components_with_a_pedigree(engines: list[Entry]) -> None:
    model = Digest.of(b"llama")
    content = with_engines(bill(), engines, node_class="h100-test", model_names={model: "llama-3"})
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(content.decode())
    assert problem is None, problem
    found = components(content)
    assert found.keys() - components(bill()).keys() == {
        f"model:{model}",
        *(f"engine:{entry.digest}" for entry in engines),
    }
    assert found[f"model:{model}"]["name"] == "llama-3"
    assert found[f"model:{model}"]["hashes"] == [{"alg": "SHA-256", "content": model.hex}]
    for entry in engines:
        component = found[f"engine:{entry.digest}"]
        assert component["hashes"] == [{"alg": "SHA-256", "content": entry.content.hex}]
        [ancestor] = component["pedigree"]["ancestors"]
        assert ancestor["hashes"] == found[f"model:{model}"]["hashes"]
        told = {item["name"]: item["value"] for item in component["properties"]}
        assert told["builder:engine-kind"] == entry.key.kind
        assert told["builder:node-class"] == "h100-test"
        assert told["builder:factor:compute-capability"] == "9.0"
    graph = {item["ref"]: item["dependsOn"] for item in json.loads(content)["dependencies"]}
    root = json.loads(content)["metadata"]["component"]["bom-ref"]
    assert {f"engine:{entry.digest}" for entry in engines} <= set(graph[root])
    assert all(graph[f"engine:{entry.digest}"] == [f"model:{model}"] for entry in engines)


def test_the_document_goes_one_version_further_and_keeps_its_serial_number(engines: list[Entry]) -> None:
    first = with_engines(bill(), engines[:1], node_class="h100-test")
    second = with_engines(first, engines, node_class="h100-test")
    assert [json.loads(one)["version"] for one in (bill(), first, second)] == [1, 2, 3]
    assert json.loads(second)["serialNumber"] == json.loads(bill())["serialNumber"]
    assert with_engines(second, engines, node_class="h100-test") == second
    assert with_engines(bill(), list(reversed(engines)), node_class="h100-test") == with_engines(
        bill(), engines, node_class="h100-test"
    )


def test_an_engine_of_two_classes_is_one_component_that_names_both(engines: list[Entry]) -> None:
    first = with_engines(bill(), engines, node_class="h100-test")
    second = with_engines(first, engines, node_class="h200-test")
    assert len(components(first)) == len(components(second))
    told = components(second)[f"engine:{engines[0].digest}"]["properties"]
    assert [item["value"] for item in told if item["name"] == "builder:node-class"] == ["h100-test", "h200-test"]


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"metadata": {"component": {}}, "dependencies": []}'])
def test_what_is_no_bill_of_this_tool_is_refused(engines: list[Entry], content: bytes) -> None:
    with pytest.raises(BadInput, match="not a bill of materials of this tool"):
        with_engines(content, engines, node_class="h100-test")


def test_the_changed_bill_is_attached_signed_and_verifies(
    target: Repository, engines: list[Entry], tmp_path: Path
) -> None:
    private, public = sign_pair(tmp_path / "keys")
    made = whole(target)
    attached = enter_engines(target, made.digest, engines, node_class="h100-test", key=private)
    assert attached is not None
    bills = [piece for piece in evidence(target, made.digest) if piece.kind == "sbom"]
    assert sorted(json.loads(piece.content)["version"] for piece in bills) == [1, 2]
    found = verify(target, made.digest, reporter=SilentReporter())
    assert found.verdict == "ok", found.checks
    signed = verify(target, made.digest, required=("sbom",), keys=[public], reporter=SilentReporter())
    verdicts = sorted(check.verdict for check in signed.checks if check.name == "sbom signature")
    assert verdicts == ["failed", "ok"]  # the build's own document was never signed
    assert enter_engines(target, made.digest, engines, node_class="h100-test", key=private) is None


def test_two_who_enter_at_once_lose_nothing(engines: list[Entry], tmp_path: Path) -> None:
    private, _ = sign_pair(tmp_path / "keys")
    layout = Layout(tmp_path / "layout")
    made = whole(layout)
    first, second = (with_engines(bill(made.digest), [one], node_class="h100-test") for one in engines)
    draft = sbom_draft(samples.lock(), image=made.digest, name="demo", version="1", licences={})
    attach(layout, made.descriptor, [replace(draft, content=first), replace(draft, content=second)])
    cache = EngineCache(tmp_path / "more")
    third = plan(cache, tmp_path / "plans", b"third plan", model=b"mistral")
    enter_engines(layout, made.digest, [third], node_class="h100-test", key=private)
    bills = [json.loads(piece.content) for piece in evidence(layout, made.digest) if piece.kind == "sbom"]
    newest = max(bills, key=lambda value: int(value["version"]))
    assert newest["version"] == 3
    refs = {component["bom-ref"] for component in newest["components"]}
    assert {f"engine:{entry.digest}" for entry in (*engines, third)} <= refs
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(newest))
    assert problem is None, problem
    listed = {ref for item in newest["dependencies"] for ref in (item["ref"], *item["dependsOn"])}
    assert listed <= refs | {newest["metadata"]["component"]["bom-ref"]}


def test_an_image_without_a_bill_gets_none(engines: list[Entry], tmp_path: Path) -> None:
    private, _ = sign_pair(tmp_path / "keys")
    layout = Layout(tmp_path / "layout")
    made = bare_image(layout)
    assert enter_engines(layout, made, engines, node_class="h100-test", key=private) is None
    assert layout.referrers(made) == ()


def test_a_bill_of_another_tool_is_left_alone(engines: list[Entry], tmp_path: Path) -> None:
    private, _ = sign_pair(tmp_path / "keys")
    layout = Layout(tmp_path / "layout")
    made = bare_image(layout)
    subject = layout.manifest(made)
    assert subject is not None
    foreign = json.loads(bill(made))
    foreign["metadata"]["tools"]["components"][0]["name"] = "syft"
    draft = sbom_draft(samples.lock(), image=made, name="demo", version="1", licences={})
    attach(layout, subject.descriptor, [replace(draft, content=json.dumps(foreign).encode())])
    assert enter_engines(layout, made, engines, node_class="h100-test", key=private) is None


def test_a_bill_about_another_image_is_not_signed_for_this_one(engines: list[Entry], tmp_path: Path) -> None:
    private, _ = sign_pair(tmp_path / "keys")
    layout = Layout(tmp_path / "layout")
    made = bare_image(layout)
    subject = layout.manifest(made)
    assert subject is not None
    other = json.loads(bill(Digest.of(b"another image")))
    draft = sbom_draft(samples.lock(), image=made, name="demo", version="1", licences={})
    attach(layout, subject.descriptor, [replace(draft, content=json.dumps({**other, "version": 9}).encode())])
    with pytest.raises(BadInput, match="is about another image") as caught:
        enter_engines(layout, made, engines, node_class="h100-test", key=private)
    assert str(Digest.of(b"another image")) in caught.value.why
    assert "--no-sbom" in caught.value.fix
    attach(layout, subject.descriptor, [draft])
    attached = enter_engines(layout, made, engines, node_class="h100-test", key=private)
    assert attached is not None, "the image's own document is there, whatever version the stranger has"
    bills = [json.loads(piece.content) for piece in evidence(layout, made) if piece.kind == "sbom"]
    signed = [one for one in bills if one["version"] == 2]
    assert signed[0]["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": made.hex}]
