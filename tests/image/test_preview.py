"""The plan of layers against the layers that are then made, and the budget of a made image."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import Refused
from builder.events import SilentReporter
from builder.image.oci import assemble
from builder.image.plan import Limits
from builder.image.preview import check_budget, preview
from builder.image.values import BuiltImage, ImagePlan
from builder.project.values import CopyRule
from builder.registry.layout import Layout
from builder.store import Store
from tests.base.debs import locked_base
from tests.image.plans import make_plan, make_project
from tests.image.wheels import File, build_wheel


@pytest.fixture
def plan(tmp_path: Path, store: Store) -> ImagePlan:
    root = tmp_path / "project"
    (root / "wheels").mkdir(parents=True)
    (root / "app").mkdir()
    (root / "app/main.py").write_text("print('hello')\n")
    noise = b"".join(bytes([value * value % 251, value % 256]) for value in range(700_000))
    built = [
        build_wheel(root / "wheels", "big", files={"big/data.bin": File(noise, method=zipfile.ZIP_STORED)}),
        build_wheel(root / "wheels", "small", files={"small.py": b"x = 1\n"}),
        build_wheel(root / "wheels", "tiny", files={"tiny.py": b"y = 1\n"}),
    ]
    project = make_project(root, copy=[CopyRule(source="app", target="/app")])
    return make_plan(project, locked_base(tmp_path / "base", store), built)


def made(plan: ImagePlan, target: Layout, store: Store) -> BuiltImage:
    return assemble(plan, target=target, tag=None, store=store, reporter=SilentReporter())


def sizes(plan: ImagePlan) -> dict[str, int]:
    return {file: path.stat().st_size for file, path in plan.wheelhouse.files.items()}


def test_the_plan_names_the_layers_that_are_made(plan: ImagePlan, tmp_path: Path, store: Store) -> None:
    before = preview(plan.project, plan.lock, sizes(plan), store=store, reporter=SilentReporter())
    image = made(plan, Layout(tmp_path / "out"), store)
    assert [layer.title for layer in before.layers] == [layer.title for layer in image.layers]
    wheels = [(item, layer) for item, layer in zip(before.layers, image.layers, strict=True) if item.wheels]
    assert sorted(file for item, _ in wheels for file in item.wheels) == sorted(plan.wheelhouse.files)
    big = next((item, layer) for item, layer in wheels if item.title.startswith("big"))
    assert big[1].descriptor.size == pytest.approx(big[0].size, rel=0.01)
    assert not before.layers[0].exact
    after = preview(plan.project, plan.lock, sizes(plan), store=store, reporter=SilentReporter())
    assert (after.layers[0].exact, after.layers[0].size) == (True, image.layers[0].descriptor.size)


def test_a_plan_makes_nothing(plan: ImagePlan, store: Store) -> None:
    before = sorted(path for path in store.root.rglob("*") if path.is_file())
    preview(plan.project, plan.lock, sizes(plan), store=store, reporter=SilentReporter())
    assert sorted(path for path in store.root.rglob("*") if path.is_file()) == before


def test_what_cannot_be_built_cannot_be_planned(plan: ImagePlan, store: Store) -> None:
    with pytest.raises(Refused, match="does not fit the layers"):
        preview(plan.project, plan.lock, sizes(plan), store=store, reporter=SilentReporter(), limits=Limits(layers=3))


def test_a_budget_names_the_largest_layers_first(plan: ImagePlan, tmp_path: Path, store: Store) -> None:
    image = made(plan, Layout(tmp_path / "out"), store)
    assert check_budget(image, None) is None
    exact = check_budget(image, image.size)
    assert exact is not None
    assert exact.kept
    small = check_budget(image, image.size - 1)
    assert small is not None
    assert not small.kept
    assert small.largest[0][0] == "big 1.0"
    assert [size for _, size in small.largest] == sorted((size for _, size in small.largest), reverse=True)
    again = check_budget(replace(image, layers=image.layers[:1]), image.size)
    assert again is not None
    assert [title for title, _ in again.largest] == [image.layers[0].title]
