"""From an image reference to the repository it names."""

from __future__ import annotations

from collections.abc import Mapping

from builder.errors import BadInput, did_you_mean
from builder.events import Reporter
from builder.names import LayoutRef, Reference, RegistryRef
from builder.registry.layout import Layout
from builder.registry.mirrored import Mirrored
from builder.registry.mirrors import find_sources
from builder.registry.values import Descriptor, Repository

__all__ = ["NoSuchImage", "find_image", "open_repository"]


_NOTHING = "check how the repository or folder is spelled, or publish an image there first"


class NoSuchImage(BadInput):
    """A reference that names nothing, or not one thing."""

    kind = "no-such-image"


def open_repository(
    reference: Reference,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    plain_http: bool | None = None,
    mirrors: bool = False,
    reporter: Reporter,
) -> Repository:
    """The layout or registry repository of a reference; its tag and digest are not looked at. Nothing is contacted yet.

    `plain_http` None means: http for a registry on loopback, https for every other. `offline` refuses registries that
    are not on loopback (`Offline`). Credentials, proxies and mirrors come from `environ`. `mirrors` is for callers that
    take content from there: they may be given a mirror's. Callers that decide by tags ask the registry itself.
    """
    if isinstance(reference, LayoutRef):
        return Layout(reference.path)
    from builder.registry.client import Remote  # httpx takes a while to import
    from builder.registry.http import is_loopback

    def opened(source: RegistryRef, plain: bool | None) -> Remote:
        return Remote.open(source, environ=environ, offline=offline, plain_http=plain, reporter=reporter)

    if not mirrors:
        return opened(reference, plain_http)
    sources = find_sources(reference, environ)
    primary = opened(sources.primary.reference, plain_http or sources.primary.plain_http or None)
    if not sources.mirrors:
        return primary
    others = [
        (opened(mirror.reference, mirror.plain_http or None), mirror.pull)
        for mirror in sources.mirrors
        if not offline or is_loopback(mirror.reference.host)
    ]
    return Mirrored(primary, others, reporter=reporter)


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
            fix="add :TAG or @sha256:…" if tags else _NOTHING,
        )
    found = repository.resolve(tag)
    if found is None:
        others = repository.tags()
        raise NoSuchImage(
            f"there is no image {reference}",
            why=f"{repository} has no tag {tag!r}" if others else f"nothing in {repository} has a tag",
            fix=did_you_mean(tag, others) if others else _NOTHING,
        )
    return found
