from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from email.message import Message
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.metadata import parse_email

from builder.names import Digest
from builder.release.licences import read_licences, wheel_licence
from builder.release.sbom import sbom_draft
from builder.release.values import Licence
from builder.store import Store
from tests.release import samples

IMAGE = Digest.of(b"image")
LICENCES = {"numpy": Licence(expression="BSD-3-Clause AND MIT"), "sympy": Licence(names=("BSD License",))}


def _document(created: str | None = "2026-09-01T00:00:00Z") -> dict[str, object]:
    draft = sbom_draft(samples.lock(), image=IMAGE, name="demo", version="1.0", licences=LICENCES, created=created)
    loaded: dict[str, object] = json.loads(draft.content)
    return loaded


@pytest.mark.parametrize("created", [None, "2026-09-01T00:00:00Z"])
def test_the_sbom_is_valid_cyclonedx(created: str | None) -> None:
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(_document(created)))
    assert problem is None, problem


def test_components_carry_purl_hash_and_licence() -> None:
    components = _document()["components"]
    assert isinstance(components, list)
    found = {component["name"]: component for component in components}
    assert set(found) == {"numpy", "sympy", "mpmath", "torch", "debian:bookworm", "libstdc++6"}
    torch = PackageURL.from_string(found["torch"]["purl"])
    assert (torch.type, torch.name, torch.version) == ("pypi", "torch", "2.13.0+cpu")
    deb = PackageURL.from_string(found["libstdc++6"]["purl"])
    assert (deb.namespace, deb.name, deb.version) == ("debian", "libstdc++6", "12.2.0-14+deb12u1")
    assert deb.qualifiers == {"arch": "amd64", "distro": "bookworm"}
    numpy = samples.lock().packages[0]
    assert found["numpy"]["hashes"] == [{"alg": "SHA-256", "content": numpy.sha256.hex}]
    assert found["numpy"]["licenses"] == [{"expression": "BSD-3-Clause AND MIT"}]
    assert found["sympy"]["licenses"] == [{"license": {"name": "BSD License"}}]
    assert "licenses" not in found["torch"]


def test_the_dependency_graph_is_the_locks() -> None:
    document = _document()
    dependencies = document["dependencies"]
    assert isinstance(dependencies, list)
    graph = {item["ref"]: item["dependsOn"] for item in dependencies}
    root = "pkg:oci/demo@sha256%3A" + IMAGE.hex + "?arch=amd64"
    base = f"base:{samples.lock().base.digest}"
    assert graph[root] == sorted([base, "pkg:pypi/numpy@2.3.5", "pkg:pypi/torch@2.13.0%2Bcpu"])
    assert graph["pkg:pypi/torch@2.13.0%2Bcpu"] == ["pkg:pypi/sympy@1.14.0"]
    assert graph["pkg:pypi/sympy@1.14.0"] == ["pkg:pypi/mpmath@1.3.0"]


def test_no_secret_and_no_local_path_gets_out() -> None:
    text = json.dumps(_document())
    assert "secret" not in text
    assert "hush" not in text
    assert "/home/ann" not in text
    assert "https://index.example/torch-2.13.0+cpu-py3-none-any.whl" in text


def test_same_inputs_same_bytes() -> None:
    assert _document() == _document()
    other = sbom_draft(samples.lock(), image=Digest.of(b"x"), name="demo", version="1.0", licences={})
    assert json.loads(other.content)["serialNumber"] != _document()["serialNumber"]


def test_licences_are_read_from_the_wheels_themselves_and_once(tmp_path: Path, store: Store) -> None:
    files, packages = {}, []
    for name, line in (("my_lib", "License-Expression: MIT"), ("silent", "Summary: says nothing")):
        filename = f"{name}-1.0-py3-none-any.whl"
        files[filename] = tmp_path / f"{name}.blob"  # as in the store, the path does not carry the name
        with zipfile.ZipFile(files[filename], "w") as wheel:
            text = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n{line}\n"
            wheel.writestr(f"{name}-1.0.dist-info/METADATA", text)
        packages.append(
            replace(samples.wheel(name.replace("_", "-"), "1.0"), file=filename, sha256=Digest.of_file(files[filename]))
        )
    expected = {"my-lib": Licence(expression="MIT")}
    assert read_licences(packages, files, store) == expected
    for path in files.values():
        path.unlink()
    assert read_licences(packages, files, store) == expected


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License-Expression": "MIT OR Apache-2.0", "License": "MIT"}, Licence(expression="MIT OR Apache-2.0")),
        ({"License": "BSD"}, Licence(names=("BSD",))),
        ({"License": "Apache License\n  with a very long text"}, Licence(names=("Apache License",))),
        (
            {"License": "MIT", "Classifier": "License :: OSI Approved :: MIT License"},
            Licence(names=("MIT", "MIT License")),
        ),
        ({"Classifier": "License :: OSI Approved"}, None),
        ({"License": "UNKNOWN"}, None),
        ({"Classifier": "Programming Language :: Python"}, None),
        ({}, None),
    ],
)
def test_licences_as_wheels_state_them(fields: dict[str, str], licence: Licence | None) -> None:
    message = Message()
    for key, value in {"Metadata-Version": "2.4", "Name": "x", "Version": "1", **fields}.items():
        message[key] = value
    assert wheel_licence(parse_email(message.as_string())[0]) == licence
