"""OCI distribution: client, layout on disk, authentication, referrers, tags."""

from builder.registry.copy import Copied, copy
from builder.registry.layout import Layout
from builder.registry.open import find_image, open_repository
from builder.registry.values import Descriptor, Manifest, MediaType, Repository

__all__ = [
    "Copied",
    "Descriptor",
    "Layout",
    "Manifest",
    "MediaType",
    "Repository",
    "copy",
    "find_image",
    "open_repository",
]
