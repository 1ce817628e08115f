"""AWS Neuron: NEFF files, and whether a runtime knows all features that one asks for.

A header of 1024 bytes, all fields little-endian, then a tar file (compressed with gzip from package version 2 on).
Source: aws-neuron-sdk documentation, neuron-runtime/explore/work-with-neff-files.rst, "NEFF Header"; the two package
versions and their hashes: awslabs/klr, KLR/NEFF.lean.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from builder.cache.formats.cursor import Cursor
from builder.cache.formats.values import Blob, BrokenEngine, Header

__all__ = ["Neff", "check_neff", "missing_features", "parse_neff", "read_neff"]

_HEADER = 1024
_MAX_MAJOR = 2
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Neff:
    """The header."""

    package: int
    """1: a tar file with its sha256; 2: a gzipped tar file with its md5."""
    data_size: int
    """Bytes behind the header."""
    major: int
    minor: int
    build: str
    """What the compiler calls the build that wrote it."""
    hash: bytes
    """32 bytes: sha256, or md5 and zeros."""
    name: str
    cores: int
    """`requested_tpb_count`: NeuronCores that the compiler was told to use."""
    features: int
    """`feature_bits`: each bit is something that the runtime must know, or the model will not load."""
    lnc: int
    """`lnc_size`: physical cores to a logical one; 0 when the compiler does not say."""


def parse_neff(blob: Blob) -> Neff:
    """The header; `BrokenEngine` names the field that cannot be."""
    cursor = Cursor(blob)
    package = cursor.little(8, "pkg_version")
    if package not in (1, 2):
        raise cursor.fault(f"pkg_version is {package}, and only 1 and 2 exist", at=0)
    size = cursor.little(8, "header_size")
    if size != _HEADER:
        raise cursor.fault(f"header_size is {size}, and a NEFF header has {_HEADER} bytes", at=8)
    data_size = cursor.little(8, "data_size")
    if data_size > blob.size - _HEADER:
        raise cursor.fault(f"data_size is {data_size}, but the file has {max(blob.size - _HEADER, 0)} bytes", at=16)
    major = cursor.little(8, "neff_version_major")
    if major > _MAX_MAJOR:
        raise cursor.fault(f"NEFF version {major} is not known here; 0 to {_MAX_MAJOR} are", at=24)
    minor = cursor.little(8, "neff_version_minor")
    build = cursor.text(128, "neff_build_version")
    cursor.skip(4, "num_tpb")
    digest = cursor.take(32, "hash")
    cursor.skip(16, "uuid")
    name = cursor.text(256, "name")
    cores = cursor.little(4, "requested_tpb_count")
    cursor.skip(64, "tpb_per_node")
    features = cursor.little(8, "feature_bits")
    lnc = cursor.little(4, "lnc_size")
    cursor.skip(468, "the padding")
    zipped = blob.read(_HEADER, 2) == _GZIP
    if data_size and package == 2 and not zipped:
        raise cursor.fault("pkg_version 2 holds a gzip stream, and here is none", at=_HEADER)
    return Neff(
        package=package,
        data_size=data_size,
        major=major,
        minor=minor,
        build=build,
        hash=digest,
        name=name,
        cores=cores,
        features=features,
        lnc=lnc,
    )


def read_neff(blob: Blob) -> Header:
    """What a NEFF says about itself."""
    neff = parse_neff(blob)
    properties = {
        "neff-version": f"{neff.major}.{neff.minor}",
        "features": f"{neff.features:#x}",
        "cores": str(neff.cores),
    }
    unknown = {"target": "the header does not name the Neuron generation: state the --target it was compiled for"}
    if neff.lnc:
        properties["lnc"] = str(neff.lnc)
    else:
        unknown["lnc"] = "lnc_size is 0"
    if neff.build:
        properties["neff-build"] = neff.build
    return Header(format="neff", properties=properties, unknown=unknown)


def check_neff(blob: Blob) -> None:
    """Read all of it and hold it against the hash of its own header; `BrokenEngine` when they differ.

    The hash protects against damage alone: whoever changes a NEFF can write a new one.
    """
    neff = parse_neff(blob)
    name, length = ("sha256", 32) if neff.package == 1 else ("md5", 16)
    hasher = hashlib.new(name, usedforsecurity=False)
    at, end = _HEADER, _HEADER + neff.data_size
    while at < end and (piece := blob.read(at, min(_CHUNK, end - at))):
        hasher.update(piece)
        at += len(piece)
    if hasher.digest() != neff.hash[:length]:
        raise BrokenEngine(blob.name, f"the {name} of its content is not the one in its header", offset=172)


def missing_features(features: int, supported: int) -> tuple[int, ...]:
    """The bits that a NEFF asks for and a runtime does not know, lowest first; none means that it may load (FR-15)."""
    left = features & ~supported
    return tuple(bit for bit in range(left.bit_length()) if left >> bit & 1)
