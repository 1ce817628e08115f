"""From an image reference to the repository it names."""

from __future__ import annotations

from collections.abc import Mapping

from builder.errors import BadInput, did_you_mean
from builder.events import Reporter
from builder.names import LayoutRef, Reference
from builder.registry.layout import Layout
from builder.registry.values import Descriptor, Repository

__all__ = ["NoSuchImage", "find_image", "open_repository"]


class NoSuchImage(BadInput):
    """A reference that names nothing, or not one thing."""

    kind = "no-such-image"


def open_repository(
    reference: Reference,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    plain_http: bool | None = None,
    reporter: Reporter,
) -> Repository:
    """The layout or registry repository of a reference; its tag and digest are not looked at. Nothing is contacted yet.

    `plain_http` None means: http for a registry on loopback, https for every other. `offline` refuses registries that
    are not on loopback (`Offline`). Credentials and proxies come from `environ`.
    """
    if isinstance(reference, LayoutRef):
        return Layout(reference.path)
    from builder.registry.client import Remote  # httpx takes a while to import

    return Remote.open(reference, environ=environ, offline=offline, plain_http=plain_http, reporter=reporter)


def find_image(reference: Reference, repository: Repository) -> Descriptor:
    """What a reference points at: its digest, else its tag, else the one image of a layout that holds only one.

    `NoSuchImage` says what there is instead.
    """
    if reference.digest is not None:
        manifest = repository.manifest(reference.digest)
        if manifest is None:
            raise NoSuchImage(f"there is no image {reference}", why=f"{reference.digest} is not in {repository}")
        return manifest.descriptor
    tags = () if reference.tag is not None else repository.tags()
    tag = reference.tag or (tags[0] if isinstance(reference, LayoutRef) and len(tags) == 1 else None)
    if tag is None:
        raise NoSuchImage(
            f"which image of {repository} is meant?",
            why=f"its tags are {', '.join(tags)}" if tags else "it has no tags",
            fix="add :TAG or @sha256:…",
        )
    found = repository.resolve(tag)
    if found is None:
        raise NoSuchImage(
            f"there is no image {reference}",
            why=f"{repository} has no tag {tag!r}",
            fix=did_you_mean(tag, repository.tags()),
        )
    return found
