"""Engines, images and keys for the tests of the registry tier."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from builder.cache import EngineCache, Entry, engine_key, engine_kind
from builder.names import Digest
from builder.node.values import NodeClass
from builder.registry.dsse import PrivateKey, PublicKey, read_key, read_private_key
from builder.registry.manifests import EMPTY_CONFIG, canonical_json
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType, Repository

NODE = NodeClass(
    name="h100-test",
    backend="cuda",
    arch="x86_64",
    device="NVIDIA H100 80GB HBM3",
    device_arch="sm_90",
    device_memory_mib=81559,
    driver="570.86.15",
)
TENSORRT = {"tensorrt": "10.9.0.34", "precision": "fp16"}
TRITON = {"triton": "3.6.0", "ptxas": "V12.9.86"}


def sign_pair(folder: Path, name: str = "ours") -> tuple[PrivateKey, PublicKey]:
    """A new pair of keys, as files and as values."""
    key = Ed25519PrivateKey.generate()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pub").write_bytes(public)
    return read_private_key(folder / f"{name}.pem"), read_key(folder / f"{name}.pub")


def image(repository: Repository, seed: bytes = b"image", tag: str | None = None) -> Digest:
    """An image of one layer."""
    blobs = []
    for data, media_type in ((b'{"rootfs":{}}' + seed, MediaType.CONFIG), (seed, MediaType.LAYER_TAR)):
        blob = Descriptor(media_type=media_type, digest=Digest.of(data), size=len(data))
        repository.put_blob(blob, BytesSource(data))
        blobs.append(blob.to_json())
    document = {"schemaVersion": 2, "mediaType": MediaType.MANIFEST, "config": blobs[0], "layers": blobs[1:]}
    assert EMPTY_CONFIG
    return repository.put_manifest(Manifest(MediaType.MANIFEST, canonical_json(document)), tag=tag).digest


def plan(cache: EngineCache, folder: Path, data: bytes, *, model: bytes = b"model", **properties: str) -> Entry:
    """A TensorRT plan in a cache."""
    path = folder / f"{Digest.of(data + model).hex[:8]}.plan"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    stated = {name.replace("_", "-"): value for name, value in properties.items()}
    key = engine_key(engine_kind("tensorrt"), model=Digest.of(model), properties={**TENSORRT, **stated}, node=NODE)
    return cache.put(key, path)


def kernels(
    cache: EngineCache, folder: Path, files: Mapping[str, bytes], *, model: bytes = b"model", **properties: str
) -> Entry:
    """A Triton cache in a cache."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    key = engine_key(
        engine_kind("triton-nvidia"), model=Digest.of(model), properties={**TRITON, **properties}, node=NODE
    )
    return cache.put(key, folder)
