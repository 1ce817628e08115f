"""Wheel variants are parsed and explained, and nothing depends on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.errors import BadInput
from builder.matrix import explain, load_backend, parse_question
from builder.matrix.variants import explain_variants, parse_variants, variant_label
from tests.conftest import RunBuilder
from tests.schemas import document

VARIANTS = {
    "default-priorities": {"namespace": ["nvidia", "amd"]},
    "variants": {
        "cu130": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90", "100"]}},
        "cu126": {"nvidia": {"cuda_version_lower_bound": ["12.6"], "sm_arch": ["9.0"]}},
        "rocm72": {"amd": {"gfx_arch": ["gfx942"], "rocm_version": ["7.2"]}},
        "x8664v4": {"x86_64": {"level": ["v4"]}},
        "null": {},
    },
}


def sentences(backend: str, **settings: str) -> dict[str, str]:
    loaded = load_backend(backend)
    question = parse_question(settings, loaded)
    told = explain_variants(parse_variants(json.dumps(VARIANTS)), question, loaded)
    return {line.removeprefix("variant ").split(":")[0]: line for line in told}


def test_a_driver_and_a_target_choose_among_builds() -> None:
    told = sentences("cuda", driver="570.86.10", arch="sm_90")
    assert "does not fit (nvidia :: cuda_version_lower_bound)" in told["cu130"]
    assert "cu126: fits; nvidia :: cuda_version_lower_bound :: 12.6; nvidia :: sm_arch :: 9.0" in told["cu126"]
    assert "cannot be judged" in told["x8664v4"]
    assert "null: fits everywhere; no properties" in told["null"]
    assert all("nothing depends on it" in line for line in told.values())


def test_rocm_builds_by_target_and_release() -> None:
    assert "rocm72: fits" in sentences("rocm", toolkit="7.2.3", arch="gfx942")["rocm72"]
    assert "does not fit (amd :: gfx_arch)" in sentences("rocm", toolkit="7.2.3", arch="gfx90a")["rocm72"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no table 'variants'"),
        ('{"variants": {"a": 1}}', "not a table of namespaces"),
        ('{"variants": {"a": {"nvidia": 1}}}', "nvidia is not a table of features"),
        ('{"variants": {"a": {"nvidia": {"sm_arch": "90"}}}}', "is not a list of texts"),
    ],
)
def test_what_is_no_variant_json_is_named(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_variants(text)


def test_a_label_is_read_from_a_wheels_name() -> None:
    name = "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64-cu130.whl"
    assert variant_label(name) == "cu130"
    assert variant_label("torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl") is None
    assert variant_label("torch-2.13.0-1-cp312-cp312-manylinux_2_28_x86_64.whl") is None
    loaded = load_backend("cuda")
    answer = explain(loaded, parse_question({"wheel": name, "os": "ubi9", "python": "3.12"}, loaded))
    assert answer.verdict == "supported"
    assert "its variant label cu130 (PEP 817, a draft) decides nothing" in answer.rules[0].why


def test_the_command_shows_them_as_notes(tmp_path: Path, run_builder: RunBuilder) -> None:
    path = tmp_path / "variant.json"
    path.write_text(json.dumps(VARIANTS))
    asked = ("matrix", "explain", "--backend", "cuda", "--set", "device=H100", "--set", "driver=580.65.06", "--json")
    plain = document(run_builder(*asked), "matrix-explain")
    shown = document(run_builder(*asked, "--variants", path), "matrix-explain")
    assert (shown["verdict"], shown["rules"]) == (plain["verdict"], plain["rules"])
    assert any(note.startswith("variant cu130: fits") for note in shown["notes"])
