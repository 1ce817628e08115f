"""A base must be consistent before anything is put on it, and keep its framework (FR-02)."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builder.audit.base import judge_base
from builder.base.oci import find_facts
from builder.base.values import BaseDistribution
from builder.lock.policy import PackagePolicy, load_package_policy
from builder.registry.layout import Layout
from builder.store import Store
from tests.conftest import RunBuilder
from tests.image.bases import ROOTFS, put_image
from tests.schemas import document

SITE = "opt/conda/lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def policy() -> PackagePolicy:
    return load_package_policy()


def metadata(name: str, version: str, *requires: str, site: str = SITE) -> dict[str, bytes | str]:
    """The METADATA of one installed distribution."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {line}" for line in requires]
    path = f"{site}/{name.replace('-', '_')}-{version}.dist-info/METADATA"
    return {path: "\n".join([*lines, "", "A text that says Requires-Dist: nothing"]).encode()}


ROCM_TORCH = metadata(
    "torch", "2.4.0.dev20240520+rocm6.0", "pytorch-triton-rocm", "filelock", "sympy; python_version < '3'"
)
NUMPY = metadata("numpy", "1.26.4")
FILELOCK = metadata("filelock", "3.14.0")
TRITON = metadata("pytorch-triton-rocm", "3.0.0")


@pytest.fixture
def vendor(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "vendor")


def check(run_builder: RunBuilder, layout: Layout, *options: str) -> tuple[int, dict[str, Any]]:
    done = run_builder("base", "check", f"oci:{layout.path}:base", "--backend", "rocm", "--json", *options)
    return done.returncode, document(done, "base-check")


def test_a_vendor_image_whose_torch_lacks_its_triton_is_refused(
    run_builder: RunBuilder, vendor: Layout, store: Store
) -> None:
    """FR-02."""
    put_image(vendor, store, [{**ROOTFS, **ROCM_TORCH, **NUMPY}])
    code, found = check(run_builder, vendor)
    assert (code, found["verdict"]) == (1, "refused")
    (finding,) = found["findings"]
    assert (finding["rule"], finding["severity"]) == ("base-inconsistent", "block")
    assert finding["package"] == "torch 2.4.0.dev20240520+rocm6.0"
    assert finding["why"] == (
        "torch 2.4.0.dev20240520+rocm6.0 is the rocm build; it requires pytorch-triton-rocm, but that is not "
        "installed; it requires filelock, but that is not installed"
    )
    assert finding["site"] == f"/{SITE}"


def test_the_same_image_made_whole_is_fit(run_builder: RunBuilder, vendor: Layout, store: Store) -> None:
    put_image(vendor, store, [{**ROOTFS, **ROCM_TORCH, **NUMPY}, {**TRITON, **FILELOCK}])
    code, found = check(run_builder, vendor)
    assert (code, found["verdict"], found["findings"]) == (0, "ok", [])
    names = [row["name"] for row in found["distributions"]]
    assert names == ["filelock", "numpy", "pytorch-triton-rocm", "torch"]


def test_nothing_is_locked_on_an_inconsistent_base(
    run_builder: RunBuilder, vendor: Layout, store: Store, tmp_path: Path
) -> None:
    """FR-02: asking for plain torch on such an image would take the public CUDA build."""
    put_image(vendor, store, [{**ROOTFS, **ROCM_TORCH, **NUMPY}])
    (tmp_path / "builder.toml").write_text(
        'name = "app"\nversion = "1"\npython = "3.11"\nrequirements = ["torch"]\n'
        f'[backend.rocm]\nbase = "oci:{vendor.path}:base"\n'
    )
    done = run_builder("lock", "--backend", "rocm", "--json")
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stdout)
    assert (error["schema"], error["kind"]) == ("builder/error/1", "refused")
    assert "it requires pytorch-triton-rocm, but that is not installed" in error["why"]
    assert "builder base check" in error["fix"]
    assert not list(tmp_path.glob("pylock*"))


def test_the_text_says_what_why_where_and_how_to_mend(run_builder: RunBuilder, vendor: Layout, store: Store) -> None:
    put_image(vendor, store, [{**ROOTFS, **metadata("left", "1", "right>=2"), **metadata("right", "1.5")}])
    done = run_builder("base", "check", f"oci:{vendor.path}:base", "--backend", "cpu")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[:2] == ["warn: left 1 requires right>=2, but 1.5 is there", "  rule:  base-inconsistent"]
    assert lines[-1] == f"oci:{vendor.path}:base for cpu: ok; 2 Python distributions"


def test_a_built_in_base_has_no_distributions(run_builder: RunBuilder) -> None:
    done = run_builder("base", "check", "debian:bookworm", "--backend", "cpu", "--json")
    found = document(done, "base-check")
    assert (done.returncode, found["verdict"], found["distributions"]) == (0, "ok", [])


def test_without_image_and_project_the_message_says_what_is_missing(run_builder: RunBuilder) -> None:
    done = run_builder("base", "check", "--backend", "cpu")
    assert done.returncode == 2
    assert "no project file" in done.stderr


# The judgement alone.


def dist(
    name: str,
    version: str,
    *requires: str,
    site: str = f"/{SITE}",
    python: str | None = "3.11",
    shares_system: bool = False,
) -> BaseDistribution:
    return BaseDistribution(
        name=name, version=version, requires=requires, site=site, python=python, shares_system=shares_system
    )


def rules(
    *distributions: BaseDistribution,
    policy: PackagePolicy,
    backend: str = "rocm",
    locked: Mapping[str, str] | None = None,
) -> list[tuple[str, str, str]]:
    found = judge_base(distributions, backend=backend, python="3.11", arch="x86_64", policy=policy, locked=locked or {})
    return [(one.rule, one.severity, one.package) for one in found]


@pytest.mark.parametrize(
    ("locked", "expected"),
    [
        ({}, []),
        ({"torch": "2.8.0+rocm7.0"}, []),
        ({"numpy": "2.0"}, []),
        ({"torch": "2.8.0"}, [("base-replaced", "block", "torch 2.8.0+rocm7.0")]),
        ({"torch": "2.13.0+rocm7.2"}, [("base-replaced", "block", "torch 2.8.0+rocm7.0")]),
    ],
)
def test_a_backends_packages_in_the_base_are_frozen(
    policy: PackagePolicy, locked: dict[str, str], expected: list[tuple[str, str, str]]
) -> None:
    base = (dist("torch", "2.8.0+rocm7.0"), dist("numpy", "1.26.4"))
    assert rules(*base, policy=policy, locked=locked) == expected


def test_another_backends_package_in_the_base_is_foreign(policy: PackagePolicy) -> None:
    base = (dist("torch", "2.8.0+cu128"), dist("nvidia-ml-py", "13.1"))
    assert rules(*base, policy=policy) == [("base-foreign", "block", "torch 2.8.0+cu128")]
    assert rules(*base, policy=policy, backend="cuda") == []


@pytest.mark.parametrize(
    ("requires", "there", "met"),
    [
        ("triton==3.4.0", "3.4.0+gitabc", True),
        ("triton==3.4.0+gitabc", "3.4.0", False),
        ("triton>=3", "3.4.0.dev1", True),
        ("triton<3", "3.4.0", False),
        ("triton; extra == 'compile'", None, True),
        ("triton; platform_machine == 'aarch64'", None, True),
        ("triton; platform_system == 'Linux'", None, False),
        ("Tri_Ton", None, False),
        ("triton>=3", "a vendor's word", True),
    ],
)
def test_requirements_are_read_as_pep_508_and_440_say(
    policy: PackagePolicy, requires: str, there: str | None, met: bool
) -> None:
    base = [dist("kernels", "1", requires)]
    if there is not None:
        base.append(dist("triton", there))
    found = rules(*base, policy=policy, backend="rocm")
    assert bool(found) is not met


def test_a_line_that_is_no_requirement_is_told(policy: PackagePolicy) -> None:
    (found,) = judge_base(
        [dist("kernels", "1", "a b c")], backend="cpu", python="3.11", arch="x86_64", policy=policy, locked={}
    )
    assert found.why == "kernels 1 requires 'a b c', which is no requirement"


USR = "/usr/lib/python3/dist-packages"
LOCAL = "/usr/local/lib/python3.11/dist-packages"
VENV = "/opt/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        (dist("a", "1", "b", site=LOCAL), dist("b", "1", site=USR), True),
        (dist("a", "1", "b", site=VENV), dist("b", "1", site=USR), False),
        (dist("a", "1", "b", site=VENV, shares_system=True), dist("b", "1", site=USR), True),
        (dist("a", "1", "b", site=USR, python="3.12"), dist("b", "1", site=LOCAL), False),
        (dist("a", "1", "b", site=VENV), dist("b", "1", site=f"/{SITE}"), False),
        (dist("a", "1", "b", site="/usr/local/Ascend/python/site-packages", python=None), dist("b", "1"), True),
    ],
)
def test_what_one_interpreter_sees(
    policy: PackagePolicy, one: BaseDistribution, other: BaseDistribution, together: bool
) -> None:
    assert bool(rules(one, other, policy=policy)) is not together


# What is found in layers.


def layer(*members: tuple[str, bytes | tarfile.TarInfo]) -> tarfile.TarFile:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in members:
            if isinstance(data, tarfile.TarInfo):
                archive.addfile(data)
                continue
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    made.seek(0)
    return tarfile.open(fileobj=made, mode="r|")


def members(files: dict[str, bytes | str]) -> list[tuple[str, bytes | tarfile.TarInfo]]:
    return [(f"./{path}", data) for path, data in files.items() if isinstance(data, bytes)]


def test_an_upper_layer_replaces_and_removes() -> None:
    old, new = metadata("a", "1"), metadata("a", "2")
    gone = next(iter(old)).rpartition("/")[0]
    folder, _, name = gone.rpartition("/")
    upper = layer((f"{folder}/.wh.{name}", b""), *members(new))
    lower = layer(*members(old), *members(metadata("b", "1")))
    found = find_facts([upper, lower]).distributions
    assert [(one.name, one.version) for one in found] == [("a", "2"), ("b", "1")]


def test_metadata_that_is_a_hard_link_into_an_installers_cache_is_read() -> None:
    ((path, data),) = metadata("a", "1").items()
    assert isinstance(data, bytes)
    link = tarfile.TarInfo(path)
    link.type, link.linkname = tarfile.LNKTYPE, "cache/a-1.dist-info/METADATA"
    found = find_facts([layer(("cache/a-1.dist-info/METADATA", data), (path, link))]).distributions
    assert [(one.name, one.site) for one in found] == [("a", f"/{SITE}")]


def test_vendored_copies_are_no_distributions() -> None:
    inner = metadata("wheel", "0.45", site=f"{SITE}/setuptools/_vendor")
    assert find_facts([layer(*members(inner))]).distributions == ()


def test_old_forms_and_debians_folder_are_read() -> None:
    facts = find_facts(
        [
            layer(
                ("usr/bin/python3.11", b"\x7fELF"),
                ("usr/lib/python3/dist-packages/six-1.16.egg-info", b"Name: six\nVersion: 1.16\n"),
                (f"{SITE}/x-1.egg-info/PKG-INFO", b"Name: X.Y\nVersion: 1\n"),
                ("opt/venv/pyvenv.cfg", b"home = /usr/bin\ninclude-system-site-packages = true\n"),
                ("opt/venv/lib/python3.11/site-packages/z-1.dist-info/METADATA", b"Name: z\nVersion: 1\n"),
            )
        ]
    )
    assert [(one.name, one.python, one.shares_system) for one in facts.distributions] == [
        ("x-y", "3.11", False),
        ("z", "3.11", True),
        ("six", "3.11", False),
    ]
