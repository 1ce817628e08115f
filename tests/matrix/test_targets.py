"""Which device code runs where: the makers' own examples, and what holds for all targets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.matrix import load_backend
from builder.matrix.products import device_row
from builder.matrix.targets import covers, normalise_target, runs_gfx, runs_ptx, runs_sm
from builder.matrix.versions import is_exact, matches, parse, sort_key, within


@pytest.mark.parametrize(
    ("cubin", "device", "runs"),
    [
        ("sm_80", "sm_86", True),
        ("sm_80", "sm_89", True),
        ("sm_86", "sm_80", False),
        ("sm_89", "sm_90", False),
        ("sm_87", "sm_87", True),
        ("sm_80", "sm_87", False),
        ("sm_87", "sm_89", False),
        ("sm_70", "sm_72", False),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False),
        ("sm_100a", "sm_103", False),
        ("sm_100f", "sm_103", True),
        ("sm_120f", "sm_121", True),
        ("sm_100f", "sm_110", False),
        ("sm_100f", "sm_120", False),
        ("sm_103f", "sm_100", False),
        ("sm_100", "sm_103", True),
        ("sm_100", "sm_107", True),
        ("sm_120", "sm_121", True),
        ("sm_100", "sm_120", False),
        ("sm_120", "sm_100", False),
        ("gfx942", "sm_90", False),
    ],
)
def test_cubins(cubin: str, device: str, runs: bool) -> None:
    assert runs_sm(cubin, device) is runs


@pytest.mark.parametrize(
    ("virtual", "device", "runs"),
    [
        ("compute_80", "sm_90", True),
        ("compute_80", "sm_120", True),
        ("compute_90", "sm_89", False),
        ("compute_90a", "sm_100", False),
        ("compute_90a", "sm_90", True),
        ("compute_100f", "sm_103", True),
        ("compute_100f", "sm_120", False),
    ],
)
def test_ptx(virtual: str, device: str, runs: bool) -> None:
    assert runs_ptx(virtual, device) is runs


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        ("gfx942", "gfx942", True),
        ("gfx90a:sramecc+:xnack-", "gfx90a", True),
        ("gfx1030", "gfx1031", False),
        ("gfx11-generic", "gfx1103", True),
        ("gfx9-4-generic", "gfx950", True),
        ("gfx12-generic", "gfx1250", False),
        ("gfx9-generic", "gfx908", False),
    ],
)
def test_gfx(code: str, device: str, runs: bool) -> None:
    assert runs_gfx(code, device) is runs


def test_the_closest_target_is_named_and_vendors_are_never_mixed() -> None:
    assert covers("sm", ("sm_80", "sm_86", "sm_90"), "sm_89") == "sm_86"
    assert covers("sm", ("sm_80",), "sm_120", ptx=("compute_80",)) == "compute_80"
    assert covers("sm", ("sm_120",), "gfx1201") is None
    assert covers("gfx", ("gfx1100",), "sm_120") is None
    assert covers("exact", ("trn2",), "trn1") is None


@pytest.mark.parametrize("text", ["9.0", "90", "sm_90", "SM90", "compute_90"])
def test_one_spelling_of_a_capability(text: str) -> None:
    assert normalise_target(text, "sm") == "sm_90"


def test_features_are_no_part_of_a_gfx_target() -> None:
    assert normalise_target("gfx90a:sramecc+:xnack-", "gfx") == "gfx90a"


@given(st.integers(5, 12), st.integers(0, 9), st.integers(5, 12), st.integers(0, 9))
def test_a_plain_cubin_never_crosses_majors_nor_runs_on_an_older_minor(a: int, b: int, c: int, d: int) -> None:
    if runs_sm(f"sm_{a}{b}", f"sm_{c}{d}"):
        assert a == c
        assert b <= d


@pytest.mark.parametrize(
    ("backend", "name", "target"),
    [
        ("cuda", "NVIDIA H100 80GB HBM3", "sm_90"),
        ("cuda", "NVIDIA GeForce RTX 5070 Ti", "sm_120"),
        ("cuda", "RTX 5090", "sm_120"),
        ("cuda", "Tesla V100-SXM2-16GB", "sm_70"),
        ("cuda", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm_120"),
        ("cuda", "RTX 4000", None),
        ("cuda", "Voodoo 2", None),
        ("rocm", "AMD Instinct MI300X", "gfx942"),
        ("rocm", "RX 9070 XT", "gfx1201"),
        ("npu", "910B3", "Ascend910B3"),
        ("npu", "Ascend910B", "Ascend910B"),
        ("tpu", "Trillium", "v6e"),
        ("neuron", "trn2.48xlarge", "trn2"),
    ],
)
def test_products_are_recognised_as_tools_print_them(backend: str, name: str, target: str | None) -> None:
    row = device_row(load_backend(backend), name)
    assert (row.text("target") if row else None) == target


def test_versions_compare_as_pep_440_says() -> None:
    assert within("2.13.0+cpu", "2.13.0")
    assert not within("2.13.0", "2.13.0+cpu")
    assert within("2.13.4", "2.13.*")
    assert within("8.3.RC1", "8.3.rc1")
    assert within("6.3.RC3.1", "6.3.rc3.1")
    assert not within("6.3.RC3.1", "6.3.RC3")
    assert matches("30.20.1", ("==30.10.*", "==30.20.*"))
    assert is_exact("2.13.0")
    assert not is_exact("2.13.*")
    assert not is_exact(">=2.13")
    assert sort_key("10.0") > sort_key("7.14")
    assert sort_key("not a version") < sort_key("0.1")
    assert parse("R580") is not None
    assert parse("soon") is None
