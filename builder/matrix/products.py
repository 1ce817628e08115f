"""Which device a product name means: names as vendors' tools print them, as people write them, or as instance types."""

from __future__ import annotations

import re
from functools import lru_cache

from builder.matrix.load import Backend
from builder.matrix.tables import Row

__all__ = ["device_row", "product_names"]


def device_row(backend: Backend, name: str) -> Row | None:
    """The row of a product or target name; None when nothing, or more than one target, answers to it.

    Four readings, the surest first: a chip as image tags spell it (`910b`, where the chip named Ascend910B is another
    one); the very name; a known name all of whose words are in it ("NVIDIA H100 80GB
    HBM3" is H100; the one with most words); a name that is part of known ones of a single target ("RTX 5090").
    """
    rows = [(row, known) for row in backend.rows("device") for known in product_names(row)]
    wanted, compact = _words(name), _compact(name)
    tagged = [row for row in backend.rows("device") if row.text("image_chip") == name]
    if tagged:
        return tagged[0]
    for row, known in rows:
        if _compact(known) == compact:
            return row
    inside = [(len(words), row) for row, known in rows if (words := _words(known)) and words <= wanted]
    if inside:
        return max(inside, key=lambda item: item[0])[1]
    around = {
        row.text("target"): row
        for row, known in rows
        if (wanted and wanted <= _words(known)) or (len(compact) >= 4 and _compact(known).endswith(compact))
    }
    if not around and "." in name:
        return device_row(backend, name.removeprefix("ml.").partition(".")[0])  # an instance type: trn2.48xlarge
    chips = {row.text("image_chip") for row in around.values()}
    alike = len(around) == 1 or (len(chips) == 1 and None not in chips)
    return next(iter(around.values()), None) if alike else None


def product_names(row: Row) -> tuple[str, ...]:
    """Every name the row's device goes by: its target first, then its products."""
    return (row.text("target") or "", *(row.texts("products") or ()))


@lru_cache(maxsize=8192)
def _compact(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


@lru_cache(maxsize=8192)
def _words(name: str) -> frozenset[str]:
    """Words of a product name without the maker's and the line's, which many leave out: `RTX 4090 D`, `RX 7600 XT`."""
    return frozenset(re.split(r"[^a-z0-9.]+", name.casefold())) - _MAKERS


_MAKERS = frozenset({"", "nvidia", "amd", "intel", "huawei", "google", "aws", "tesla", "accelerator", "graphics"}) | {
    "geforce",
    "instinct",
    "radeon",
}
