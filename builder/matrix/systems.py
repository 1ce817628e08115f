"""Names of operating systems in their spellings, and which of two names the same system."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["normalise_system", "same_system", "system_names"]

_ALIASES = (
    (r"debian gnu ?linux", "debian"),
    (r"centos (?:linux|stream)", "centos"),
    (r"el(?=\d)", "rhel"),
    (r"red ?hat enterprise linux|redhat", "rhel"),
    (r"suse linux enterprise server|suse|sle", "sles"),
    (r"rocky ?linux|rockylinux", "rocky"),
    (r"alma ?linux", "almalinux"),
    (r"oracle ?linux|oraclelinux", "oracle"),
    (r"azure ?linux", "azurelinux"),
    (r"amazon ?linux|amzn|al(?=2)", "amazonlinux"),
    (r"kylin ?os", "kylin"),
    (r"tencent ?os(?: server)?", "tencentos"),
)
"""What a spelling is called here, tried in this order."""

_CODENAMES = {
    "bionic": "ubuntu 18.04",
    "focal": "ubuntu 20.04",
    "jammy": "ubuntu 22.04",
    "noble": "ubuntu 24.04",
    "bullseye": "debian 11",
    "bookworm": "debian 12",
    "trixie": "debian 13",
}
"""Releases that image tags call by their code names (distributions' release pages)."""

_DECORATION = re.compile(r"\b(?:lts|slim|minimal)\b")
"""Words of a system's or an image's name that tell no release apart."""


@lru_cache(maxsize=4096)
def normalise_system(text: str) -> str:
    """`Ubuntu22.04`, `UBI 9`, `SLES15-SP6`, `Rocky Linux 9` → `ubuntu 22.04`, `ubi 9`, `sles 15 sp6`, `rocky 9`.

    WSL is a system of its own, whatever distribution runs in it: its driver is the Windows one.
    """
    text = text.strip().lower()
    if pretty := re.search(r'pretty_name="?([^"\n]+)', text):
        text = pretty[1]
    elif fields := dict(re.findall(r'\b(id|version_id)="?([^"\s]+)', text)):
        text = f"{fields.get('id', '')} {fields.get('version_id', '')}"  # /etc/os-release
    name = re.sub(r"[-_:/]", " ", text)
    if re.search(r"\bwsl ?2?\b|windows subsystem for linux", name):
        return "wsl"
    code = re.sub(r"^(?:debian|ubuntu) ", "", _DECORATION.sub("", name).strip())
    name = _CODENAMES.get(code, name)
    for spelling, alias in _ALIASES:
        found = re.sub(rf"^(?:{spelling})(?![a-z])", alias, name)
        if found != name:
            name = found
            break
    name = re.sub(r"^([a-z]+)(\d)", r"\1 \2", name)
    name = re.sub(r"^ubuntu (\d\d)(\d\d)(?!\d)", r"ubuntu \1.\2", name)
    name = re.sub(r"(\d)\s*sp\s*(\d)", r"\1 sp\2", name)
    name = re.sub(r"^sles (\d+)\.(\d)$", r"sles \1 sp\2", name)
    return re.sub(r"\s+", " ", _DECORATION.sub("", re.sub(r"\((.*?)\)", r"\1", name))).strip()


@lru_cache(maxsize=4096)
def system_names(cell: str) -> tuple[str, ...]:
    """The names a cell gives one system: `ubi9 / rhel 9` → `ubi 9`, `rhel 9`."""
    return tuple(normalise_system(name) for name in cell.split(" / "))


@lru_cache(maxsize=16384)
def same_system(asked: str, cell: str) -> bool:
    """Whether a system as asked and one of a table are the same, or one is a release of the other."""
    have = normalise_system(asked)
    return any(_within(have, name) or _within(name, have) for name in system_names(cell))


def _within(name: str, other: str) -> bool:
    return name == other or name.startswith((f"{other}.", f"{other} "))
