"""Base images made on the spot, in a layout."""

from __future__ import annotations

from collections.abc import Mapping

from builder.image.layers import LayerWriter, write_layer
from builder.names import Digest
from builder.registry.layout import Layout
from builder.registry.manifests import canonical_json
from builder.registry.values import BytesSource, Descriptor, FileSource, Manifest, MediaType
from builder.store import Store
from tests.base.debs import LIBC

__all__ = ["ROOTFS", "put_image"]


def put_image(
    layout: Layout,
    store: Store,
    layers: list[Mapping[str, bytes | str]],
    *,
    arch: str = "amd64",
    env: tuple[str, ...] = ("PATH=/usr/bin", "FROM_BASE=1"),
    docker: bool = False,
) -> Manifest:
    """Write an image with these files, lowest layer first; a str is a link's target, a name with .wh. a whiteout."""
    made = []
    for files in layers:

        def fill(writer: LayerWriter, files: Mapping[str, bytes | str] = files) -> None:
            for path, data in files.items():
                if isinstance(data, str):
                    writer.symlink(path, data)
                else:
                    writer.content(path, data, mode=0o755)

        made.append(write_layer(store, "x", fill))
    config = canonical_json(
        {
            "architecture": arch,
            "os": "linux",
            "config": {"Env": list(env), "Labels": {"vendor": "somebody"}},
            "rootfs": {"type": "layers", "diff_ids": [str(layer.diff_id) for layer in made]},
            "history": [{"created_by": "vendor"}],
        }
    )
    about = Descriptor(media_type=MediaType.CONFIG, digest=Digest.of(config), size=len(config))
    layout.put_blob(about, BytesSource(config))
    rows = []
    for layer in made:
        assert layer.path is not None
        layout.put_blob(layer.descriptor, FileSource(layer.path))
        row = layer.descriptor.to_json()
        if docker:
            row["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar.gzip"
        rows.append(row)
    document = {"schemaVersion": 2, "mediaType": MediaType.MANIFEST, "config": about.to_json(), "layers": rows}
    manifest = Manifest(MediaType.MANIFEST, canonical_json(document))
    layout.put_manifest(manifest, tag="base")
    return manifest


ROOTFS: dict[str, bytes | str] = {
    "usr/lib/x86_64-linux-gnu/libc.so.6": LIBC,
    "usr/bin/python3.11": b"\x7fELF",
    "usr/bin/python3": "python3.11",
}
