"""Small images and referrers made of real bytes, for any repository."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping

from builder.names import Digest
from builder.registry.manifests import EMPTY_CONFIG, canonical_json
from builder.registry.values import BytesSource, Descriptor, Manifest, MediaType, Repository


def layer(files: Mapping[str, bytes]) -> tuple[bytes, Digest]:
    """A gzipped tar of these files, and its diff id."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), mtime=0), Digest.of(out.getvalue())


def put(repository: Repository, data: bytes, media_type: str) -> Descriptor:
    descriptor = Descriptor(media_type=media_type, digest=Digest.of(data), size=len(data))
    repository.put_blob(descriptor, BytesSource(data))
    return descriptor


def image(
    repository: Repository,
    *,
    text: str = "hello",
    tag: str | None = None,
    annotations: Mapping[str, str] | None = None,
    extra: tuple[bytes, ...] = (),
) -> Manifest:
    """Put a runnable-looking image with one layer (and `extra` raw layers) there."""
    data, diff_id = layer({"etc/greeting": text.encode()})
    layers = [put(repository, data, MediaType.LAYER_GZIP)]
    layers += [put(repository, more, MediaType.LAYER_GZIP) for more in extra]
    config = canonical_json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [str(diff_id), *(str(Digest.of(more)) for more in extra)]},
        }
    )
    manifest = Manifest(
        MediaType.MANIFEST,
        canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": MediaType.MANIFEST,
                "config": put(repository, config, MediaType.CONFIG).to_json(),
                "layers": [descriptor.to_json() for descriptor in layers],
                "annotations": dict(annotations or {}),
            }
        ),
    )
    repository.put_manifest(manifest, tag=tag)
    return manifest


def referrer(subject: Manifest, repository: Repository, *, artifact_type: str, body: bytes) -> Manifest:
    """The manifest of an artifact about `subject`; its blobs are put, the manifest is not."""
    empty = put(repository, EMPTY_CONFIG, MediaType.EMPTY)
    return Manifest(
        MediaType.MANIFEST,
        canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": MediaType.MANIFEST,
                "artifactType": artifact_type,
                "config": empty.to_json(),
                "layers": [put(repository, body, artifact_type).to_json()],
                "subject": subject.descriptor.to_json(),
                "annotations": {"note": body.decode()},
            }
        ),
    )
