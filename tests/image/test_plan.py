"""Which wheels share a layer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import Refused
from builder.image.plan import Limits, WheelSize, group_wheels

GB = 1_000_000_000


def wheel(name: str, size: int, version: str = "1.0") -> WheelSize:
    return WheelSize(name=name, file=f"{name}-{version}-py3-none-any.whl", size=size)


def names(groups: tuple[tuple[WheelSize, ...], ...]) -> list[list[str]]:
    return [[item.name for item in group] for group in groups]


SMALL = [wheel(f"small-{number}", 40_000) for number in range(30)]


def test_large_wheels_are_alone_and_first() -> None:
    groups = names(group_wheels([*SMALL, wheel("torch", 2 * GB), wheel("numpy", 17_000_000)], other_layers=3))
    assert groups[:2] == [["numpy"], ["torch"]]
    assert sorted(name for group in groups[2:] for name in group) == sorted(item.name for item in SMALL)
    assert all(len(group) < len(SMALL) for group in groups)


def test_a_new_version_changes_one_group() -> None:
    before = group_wheels(SMALL, other_layers=3)
    after = group_wheels([*SMALL[1:], wheel("small-0", 41_000, "1.1")], other_layers=3)
    assert names(before) == names(after)
    assert sum(left != right for left, right in zip(before, after, strict=True)) == 1


def test_order_of_the_input_does_not_matter() -> None:
    assert group_wheels(SMALL, other_layers=3) == group_wheels(SMALL[::-1], other_layers=3)
    assert group_wheels([], other_layers=3) == ()


FR_30 = {"torch": 4.5, "nvidia-cudnn": 1.1, "nvidia-cublas": 0.9, "torchvision": 0.3, "vllm": 1.2, "flashinfer": 2.4}
FR_30 |= {"other": 3.0}


def test_fr_30_nine_layers_left_are_enough() -> None:
    wheels = [wheel(name, int(size * GB)) for name, size in FR_30.items()]
    groups = group_wheels(wheels, other_layers=118 + 2, limits=Limits(layers=127, layer_bytes=8 * GB))
    assert len(groups) <= 7
    assert all(sum(item.size for item in group) <= 8 * GB for group in groups)
    assert ["torch"] in names(groups)


def test_fr_30_what_cannot_fit_is_refused_before_any_upload() -> None:
    wheels = [wheel(name, int(size * GB)) for name, size in FR_30.items()]
    with pytest.raises(Refused, match="does not fit the layers") as caught:
        group_wheels(wheels, other_layers=126, limits=Limits(layers=127, layer_bytes=8 * GB))
    assert "127 layers of at most 8.0 GB" in caught.value.why
    with pytest.raises(Refused, match="does not fit the layers"):
        group_wheels(wheels, other_layers=127)
    with pytest.raises(Refused, match="the registry does not take this image") as caught:
        group_wheels([wheel("torch", 9 * GB)], other_layers=3, limits=Limits(layer_bytes=8 * GB))
    assert "torch-1.0-py3-none-any.whl (9.0 GB)" in caught.value.why


@given(
    sizes=st.lists(st.integers(1, 3 * GB), min_size=1, max_size=200),
    other=st.integers(1, 126),
)
def test_every_wheel_is_in_one_layer_and_the_limit_holds(sizes: list[int], other: int) -> None:
    wheels = [wheel(f"w{number}", size) for number, size in enumerate(sizes)]
    groups = group_wheels(wheels, other_layers=other)
    assert sorted(item.name for group in groups for item in group) == sorted(item.name for item in wheels)
    assert len(groups) + other <= 127
