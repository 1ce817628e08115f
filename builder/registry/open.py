"""From an image reference to the repository it names."""

from __future__ import annotations

from collections.abc import Mapping

from builder.events import Reporter
from builder.names import LayoutRef, Reference
from builder.registry.layout import Layout
from builder.registry.values import Repository

__all__ = ["open_repository"]


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
