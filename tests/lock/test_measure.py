"""The weight of what is refused, read without downloading it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from builder.errors import OutsideFailed
from builder.lock.measure import measured
from builder.lock.policy import PackagePolicy
from builder.lock.trap import blocked, summary
from builder.lock.values import Lock
from builder.wheels.remote import RemoteFile, unpacked_size
from builder.wheels.settings import IndexSettings
from tests.lock.indexes import Index, make_wheel
from tests.lock.test_trap import lock, package


def trapped(default: Index, folder: Path) -> Lock:
    """torch with a library whose wheel is small and whose contents are not."""
    contents = {"nvidia/libcublas.so": bytes(50_000_000)}
    wheel = default.add(make_wheel(folder, "nvidia-cublas", "13.1", files=contents))
    heavy = replace(package("nvidia-cublas", "13.1"), url=default.file_url(wheel), size=wheel.stat().st_size)
    gone = replace(package("torch", "2.13.0", "nvidia-cublas"), url=f"{default.url}/gone")
    return lock("cpu", ("torch",), gone, heavy)


def test_contents_are_counted_and_what_cannot_be_is_left_open(
    default: Index, tmp_path: Path, policy: PackagePolicy
) -> None:
    made = trapped(default, tmp_path)
    torch, cublas = measured(blocked(made, policy), made, settings=IndexSettings(), environ={})
    assert torch.installed is None
    assert cublas.installed is not None
    assert 50_000_000 <= cublas.installed < 50_001_000
    assert "at least 0.1 GB installed" in summary((torch, cublas), made, policy)


def test_offline_asks_nobody(default: Index, tmp_path: Path, policy: PackagePolicy) -> None:
    made = trapped(default, tmp_path)
    found = measured(blocked(made, policy), made, settings=IndexSettings(), environ={}, offline=True)
    assert [item.installed for item in found] == [None, None]
    assert default.requests == []
    assert measured((), made, settings=IndexSettings(), environ={}) == ()


def test_only_the_end_of_the_file_is_read(default: Index, tmp_path: Path) -> None:
    noise = {f"data/{number}": bytes(range(256)) * 40 for number in range(20)}
    wheel = default.add(make_wheel(tmp_path, "thing", "1.0", files=noise))
    with httpx.Client() as client:
        assert unpacked_size(client, default.file_url(wheel)) == unpacked_size(client, wheel.as_uri())
        with RemoteFile(client, default.file_url(wheel)) as file:
            whole = wheel.read_bytes()
            assert file.read(10) == whole[:10]
            assert file.seek(-4, 2) == len(whole) - 4
            assert file.read() == whole[-4:]
            assert file.read() == b""
            assert file.seek(3) == 3
            assert file.read(5) == whole[3:8]


def test_a_server_without_ranges_and_a_file_that_is_no_zip(default: Index, tmp_path: Path) -> None:
    wheel = default.add(make_wheel(tmp_path, "thing", "1.0"))
    with httpx.Client() as client:
        default.ranges = False
        with pytest.raises(OutsideFailed, match="in parts"):
            unpacked_size(client, default.file_url(wheel))
        default.ranges = True
        default.swapped[wheel.name] = b"no zip" * 100
        with pytest.raises(OutsideFailed, match="contents"):
            unpacked_size(client, default.file_url(wheel))
        with pytest.raises(OutsideFailed):
            unpacked_size(client, (tmp_path / "missing.whl").as_uri())
