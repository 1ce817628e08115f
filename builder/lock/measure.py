"""What refused packages would weigh: their wheels' contents are counted over the network, a few requests each."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from builder.errors import OutsideFailed
from builder.lock.values import BlockedPackage, Lock
from builder.wheels.remote import unpacked_size
from builder.wheels.settings import IndexSettings
from builder.wheels.transport import open_client

__all__ = ["measured"]


def measured(
    items: tuple[BlockedPackage, ...],
    lock: Lock,
    *,
    settings: IndexSettings,
    environ: Mapping[str, str],
    offline: bool = False,
) -> tuple[BlockedPackage, ...]:
    """The same packages with `installed` filled in where the file host says; offline only for files on disk.

    Never fails: a refusal stands without its weight.
    """
    if not items:
        return ()
    urls = {package.name: package.url for package in lock.packages}

    def measure(item: BlockedPackage) -> BlockedPackage:
        url = urls[item.package]
        if offline and not url.startswith("file:"):
            return item
        try:
            return replace(item, installed=unpacked_size(client, url))
        except OutsideFailed:
            return item

    with open_client(settings, environ) as client, ThreadPoolExecutor(max_workers=8) as pool:
        return tuple(pool.map(measure, items))
