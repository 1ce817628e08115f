"""Publishing that is stopped in the middle leaves nothing half done, and the next run finishes it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from builder.events import SilentReporter
from builder.registry.copy import copy
from builder.registry.errors import RegistryRefused
from builder.registry.layout import Layout
from builder.store import CorruptBlob
from tests.conftest import RunBuilder
from tests.registry.conftest import Opener
from tests.registry.little import Answer, Asked, Little, error, random_bytes
from tests.registry.samples import image
from tests.schemas import error as error_document


@pytest.mark.parametrize(
    ("number", "code", "more"),
    [(signal.SIGINT, 130, []), (signal.SIGINT, 130, ["--json"]), (signal.SIGKILL, -signal.SIGKILL, [])],
)
def test_a_signal_in_mid_upload(
    little_registry: Little,
    builder_environment: dict[str, str],
    run_builder: RunBuilder,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    more: list[str],
) -> None:
    made = image(Layout(tmp_path / "dist"), tag="1.0", extra=(random_bytes(200_000, "big"),))
    started, release = threading.Event(), threading.Event()

    def stall(asked: Asked) -> Answer | None:
        if asked.method == "PUT" and asked.size > 100_000:
            started.set()
            release.wait(60)
        return None

    little_registry.fault = stall
    words = ["publish", "oci:dist:1.0", "--to", f"{little_registry.host}/app:1.0", *more]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "builder", *words],
        env=builder_environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert started.wait(60)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    if more:
        said = error_document(subprocess.CompletedProcess(words, code, output.decode(), ""), 130)
        assert said["kind"] == "interrupted"
    else:
        assert output == b""
        assert (b"interrupted" in errors) == (number == signal.SIGINT)
    assert little_registry.manifests == {}
    release.set()
    little_registry.fault = lambda asked: None
    assert run_builder(*words).returncode == 0
    assert little_registry.manifests["app", "1.0"][1] == made.raw


def test_a_failing_blob_stops_the_others(little_registry: Little, open_little: Opener, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = image(layout, extra=tuple(random_bytes(50_000, f"{n}") for n in range(8)))
    little_registry.fault = lambda asked: error(500, "UNKNOWN", "disk full") if asked.method == "PUT" else None
    with pytest.raises(RegistryRefused, match="disk full"):
        copy(layout, open_little(), made.digest, reporter=SilentReporter(), workers=2)
    assert sum(asked.method == "PUT" for asked in little_registry.log) <= 3
    assert little_registry.manifests == {}


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"other bytes"), lambda path: path.write_bytes(b"")])
def test_a_damaged_layout_is_not_pushed(
    little_registry: Little, open_little: Opener, tmp_path: Path, damage: Callable[[Path], int]
) -> None:
    layout = Layout(tmp_path)
    data = random_bytes(11, "damaged")
    made = image(layout, extra=(data,))
    damage(next(path for path in (tmp_path / "blobs" / "sha256").iterdir() if path.read_bytes() == data))
    with pytest.raises(CorruptBlob):
        copy(layout, open_little(), made.digest, reporter=SilentReporter())
    assert little_registry.manifests == {}
