"""One base layer for the whole session: copying and packing a Python takes seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from builder.image import labels
from builder.names import Digest
from builder.registry.layout import Layout
from builder.smoke.values import RunnableImage
from tests.smoke import images


@pytest.fixture(scope="session")
def base_layer(tmp_path_factory: pytest.TempPathFactory) -> images.Tarred:
    """The base as one layer."""
    folder = tmp_path_factory.mktemp("base") / "root"
    folder.mkdir()
    images.base_root(folder)
    return images.tar_of_folder(folder)


MakeImage = Callable[..., RunnableImage]


@pytest.fixture
def make_image(tmp_path: Path, base_layer: images.Tarred) -> MakeImage:
    """Makes an image of the base, wheels and labels in the layout tmp_path/layout."""

    def make(
        *,
        wheels: Sequence[Path] = (),
        packages: Mapping[str, str] | None = None,
        backend: str = "cpu",
        warmup: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
        tag: str = "test",
    ) -> RunnableImage:
        folder = tmp_path / f"venv-{tag}"
        folder.mkdir()
        images.venv_root(folder, wheels)
        told = packages
        if told is None:
            told = dict(wheel.name.split("-")[:2] for wheel in wheels)
        values = {
            labels.BACKEND: backend,
            labels.PYTHON: "3.11",
            labels.LOCK: str(Digest.of(repr(sorted(told.items())).encode())),
            labels.PACKAGES: json.dumps(told),
        }
        if warmup:
            values[labels.WARMUP] = json.dumps({"command": list(warmup), "timeout": 60})
        layout = Layout(tmp_path / "layout")
        images.write_image(layout, [base_layer, images.tar_of_folder(folder)], labels=values, config=config, tag=tag)
        return images.opened(layout, tag)

    return make
