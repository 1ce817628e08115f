"""The rules, case by case: what an engine has, what a machine wants, and what that means."""

from __future__ import annotations

import pytest

from builder.cache.rules import NEEDS_BY, OF_ITSELF, RULES, Case

CASES = [
    # rule, wanted, found, meaning
    ("at-least", "570.86.15", "560.28.03", None),
    ("at-least", "570.86.15", "570.86.16", "differs"),
    ("at-least", "not a version", "570", "differs"),
    ("same-major", "12.9", "12.4", None),
    ("same-major", "13.0", "12.9", "differs"),
    ("same-minor", "3.11.9", "3.11.2", None),
    ("same-minor", "3.12.0", "3.11.2", "differs"),
    ("among", "9.0", "8.9 9.0 10.0", None),
    ("among", "12.0", "8.9 9.0 10.0", "differs"),
    ("covers", "1x8", "1x8 1x16", None),
    ("covers", "1x8 1x32", "1x8 1x16", "differs"),
    ("bits-within", "0x800000000000001f", "0x1f", None),
    ("bits-within", "0x800000000000001f", "0x100", "differs"),
    ("in-range", "2-4", "2-2", None),
    ("in-range", "2-4", "3-4", None),
    ("in-range", "2-4", "4-6", "differs"),
    ("in-range", "2-4", "1-1", "differs"),
    ("gfx-target", "gfx942", "gfx9-4-generic", "costs"),
    ("gfx-target", "gfx942", "gfx950", "differs"),
    ("gfx-target", "gfx90a:sramecc+:xnack-", "gfx90a", None),
    ("gfx-target", "gfx90a:xnack-", "gfx90a:xnack+", "differs"),
    ("level-within", "x86-64-v4", "x86-64-v3", "costs"),
    ("level-within", "x86-64-v2", "x86-64-v3", "differs"),
    ("level-within", "armv8.2-a", "armv8.0-a", "costs"),
    ("level-within", "armv8.2-a", "x86-64-v1", "differs"),
    ("level-within", "something", "x86-64-v1", "differs"),
]


@pytest.mark.parametrize(("rule", "wanted", "found", "meaning"), CASES)
def test_one_rule(rule: str, wanted: str, found: str, meaning: str | None) -> None:
    assert RULES[rule](Case(wanted=wanted, found=found, want={}, have={})) == meaning


@pytest.mark.parametrize(
    ("wanted", "found", "flag", "meaning"),
    [
        ("10.13.0", "10.9.0", "on", "costs"),
        ("10.13.0", "10.9.0", "off", "differs"),
        ("10.8.0", "10.9.0", "on", "differs"),
        ("10.1.0", "8.6.1", "on", "costs"),
        ("11.1.0", "8.6.1", "on", "differs"),
        ("11.1.0", "10.9.0", "on", "costs"),
        ("11.1.0", "11.0.0", "on", "costs"),
    ],
)
def test_version_compatible_plans(wanted: str, found: str, flag: str, meaning: str) -> None:
    case = Case(
        wanted=wanted,
        found=found,
        want={},
        have={"version-compatible": flag},
        by="version-compatible",
        limits=("8>10", "10>11"),
    )
    assert RULES["version-compatible"](case) == meaning


@pytest.mark.parametrize(
    ("wanted", "found", "level", "meaning"),
    [
        ("9.0", "8.6", "ampere-plus", "costs"),
        ("8.0", "12.0", "ampere-plus", "costs"),
        ("7.5", "8.6", "ampere-plus", "differs"),
        ("9.0", "8.6", "none", "differs"),
        ("9.0", "8.6", "same-compute-capability", "differs"),
    ],
)
def test_hardware_compatible_plans(wanted: str, found: str, level: str, meaning: str) -> None:
    case = Case(wanted=wanted, found=found, want={}, have={"level": level}, by="level")
    assert RULES["hardware-compatible"](case) == meaning


@pytest.mark.parametrize(
    ("listed", "device", "meaning"),
    [
        ("sm_90 sm_100 sm_120", "12.0", None),
        ("sm_90 sm_100 sm_120", "12.1", "costs"),
        ("sm_90 sm_100 sm_120", "sm_90", None),
        ("9.0 10.0", "9.0", None),
        ("sm_90", None, None),
    ],
)
def test_devices_outside_the_list(listed: str, device: str | None, meaning: str | None) -> None:
    want = {} if device is None else {"compute-capability": device}
    case = Case(wanted=listed, found=listed, want=want, have={}, by="compute-capability")
    assert RULES["device-listed"](case) == meaning


def test_the_named_sets_name_rules() -> None:
    assert set(RULES) >= NEEDS_BY | OF_ITSELF
