"""Who pulled what in, in real packages: the graph is read from their metadata on the index, by range requests."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.audit.environment import marker_environment
from builder.audit.graph import all_chains, shortest_chains
from builder.audit.judge import applies
from builder.audit.requirement import find_wheel
from builder.wheels.remote import RemoteFile
from builder.wheels.settings import read_index_settings
from builder.wheels.transport import open_client
from tests import schemas
from tests.audit.inside import Inside

pytestmark = pytest.mark.network


@dataclass
class RealIndex:
    """What real wheels require on the target, and how many bytes of them were read to know."""

    client: httpx.Client
    read: int = 0
    requires: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def add(self, *lines: str) -> None:
        """Note whom the wheels of these requirements require, without extras."""
        settings = read_index_settings(os.environ)
        environment = marker_environment("3.11", "x86_64")
        for line in lines:
            wanted = Requirement(line)
            target = {"python": "3.11", "arch": "x86_64", "glibc": "2.36"}
            link = find_wheel(wanted, self.client, settings=settings, **target)  # type: ignore[arg-type]
            with RemoteFile(self.client, link.url) as file, zipfile.ZipFile(file) as archive:
                name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
                metadata = parse_email(archive.read(name))[0]
            found = (Requirement(item) for item in metadata.get("requires_dist", ()))
            asked = {canonicalize_name(item.name) for item in found if applies(item.marker, environment) == ""}
            self.requires[canonicalize_name(wanted.name)] = tuple(sorted(asked))


@contextmanager
def real() -> Iterator[RealIndex]:
    with open_client(read_index_settings(os.environ), os.environ) as client:
        index = RealIndex(client)

        def count(response: httpx.Response) -> None:
            if response.status_code == 206:
                index.read += int(response.headers["Content-Length"])

        client.event_hooks["response"].append(count)
        yield index


def test_an_npu_package_pulls_in_the_cuda_build_of_torch() -> None:
    with real() as index:
        index.add("torch-npu==2.9.0", "torch==2.9.0", "nvidia-cudnn-cu12")
        chains = shortest_chains(index.requires, ["torch-npu"])
        nvidia = {name: chain for name, chain in chains.items() if name.startswith("nvidia-")}
        assert len(nvidia) > 10
        assert set(nvidia.values()) >= {("torch-npu", "torch", "nvidia-nccl-cu12")}
        ways = all_chains(index.requires, ["torch-npu"], "nvidia-cublas-cu12").ways
        assert ways == (
            ("torch-npu", "torch", "nvidia-cublas-cu12"),
            ("torch-npu", "torch", "nvidia-cudnn-cu12", "nvidia-cublas-cu12"),
        )
        assert 0 < index.read < 3 << 20


def test_a_server_pulls_in_triton_through_its_grammar() -> None:
    """FR-04's chain."""
    with real() as index:
        index.add("vllm==0.11.0", "xgrammar==0.1.25")
        assert shortest_chains(index.requires, ["vllm"])["triton"] == ("vllm", "xgrammar", "triton")
        assert 0 < index.read < 3 << 20


def test_a_requirement_is_refused_without_its_hundreds_of_megabytes(builder: Inside) -> None:
    result = builder("audit", "vllm==0.33.0", "torch==2.9.0", "--backend", "npu", "--json", "-v")
    assert result.returncode == 1
    targets = schemas.document(result, "audit")["targets"]
    assert [target["level"] for target in targets] == ["block", "block"]
    assert all(target["findings"][-1]["rule"] == "not-downloaded" for target in targets)
