"""One base layer for the whole session: copying and packing a Python takes seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

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


class MakeImage(Protocol):
    """Makes an image of the base, wheels and labels."""

    def __call__(
        self,
        *,
        wheels: Sequence[Path] = (),
        packages: Mapping[str, str] | None = None,
        backend: str = "cpu",
        warmup: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
        tag: str = "test",
    ) -> RunnableImage:
        """`packages` defaults to what the wheels' names say; `config` is merged into the image's own."""


def image_maker(folder: Path, base_layer: images.Tarred) -> MakeImage:
    """Makes images in the layout folder/layout."""

    def make(
        *,
        wheels: Sequence[Path] = (),
        packages: Mapping[str, str] | None = None,
        backend: str = "cpu",
        warmup: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
        tag: str = "test",
    ) -> RunnableImage:
        venv = folder / f"venv-{tag}"
        venv.mkdir()
        images.venv_root(venv, wheels)
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
        layout = Layout(folder / "layout")
        images.write_image(layout, [base_layer, images.tar_of_folder(venv)], labels=values, config=config, tag=tag)
        return images.opened(layout, tag)

    return make


@pytest.fixture
def make_image(tmp_path: Path, base_layer: images.Tarred) -> MakeImage:
    """Images in the layout tmp_path/layout."""
    return image_maker(tmp_path, base_layer)
