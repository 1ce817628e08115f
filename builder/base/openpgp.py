"""Whether a Debian release file is signed by Debian. Speaks to pysequoia (docs/decisions has the comparison).

The certificates in keys/ are those of Debian's package `debian-archive-keyring`; `FINGERPRINTS` names the primary key
of each, as https://ftp-master.debian.org/keys.html lists them, and a certificate not in the list is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from pysequoia import Cert, verify

from builder.errors import BadInput, OutsideFailed, Where, where_path

__all__ = ["FINGERPRINTS", "BadSignature", "trusted_keys", "verified"]

FINGERPRINTS: Mapping[str, str] = {
    "1f89983e0081fde018f3cc9673a4f27b8dd47936": "Debian Archive Automatic Signing Key (11/bullseye)",
    "ac530d520f2f3269f5e98313a48449044aad5c5d": "Debian Security Archive Automatic Signing Key (11/bullseye)",
    "b8b80b5b623eab6ad8775c45b7c5d7d6350947f8": "Debian Archive Automatic Signing Key (12/bookworm)",
    "05ab90340c0c5e797f44a8c8254cf3b5aec0a8f0": "Debian Security Archive Automatic Signing Key (12/bookworm)",
    "4d64fec119c2029067d6e791f8d2585b8783d481": "Debian Stable Release Key (12/bookworm)",
    "04b54c3cdca79751b16bc6b5225629df75b188bd": "Debian Archive Automatic Signing Key (13/trixie)",
    "5e04a1e3223a19a20706e20f9904613d4cce68c6": "Debian Security Archive Automatic Signing Key (13/trixie)",
    "41587f7db8c774bccf131416762f67a0b2c39de4": "Debian Stable Release Key (13/trixie)",
}
"""Fingerprint of the primary key, lower-case hex, to its name."""


class BadSignature(OutsideFailed):
    """A release file is not signed by a key that is trusted for it."""

    kind = "bad-signature"


@cache
def _debian_keys() -> tuple[Cert, ...]:
    found = [Cert.from_bytes(item.read_bytes()) for item in files("builder.base").joinpath("keys").iterdir()]
    return tuple(cert for cert in found if cert.fingerprint in FINGERPRINTS)


def trusted_keys(environ: Mapping[str, str]) -> tuple[Cert, ...]:
    """Debian's keys, or those of the file that BUILDER_DEBIAN_KEYRING names (for a mirror that signs with its own)."""
    chosen = environ.get("BUILDER_DEBIAN_KEYRING")
    if not chosen:
        return _debian_keys()
    path = Path(chosen)
    why = "it holds no certificate"
    try:
        found = tuple(Cert.split_bytes(path.read_bytes()))
    except (OSError, RuntimeError) as error:
        found, why = (), _first_line(error)
    if not found:
        raise BadInput(
            "BUILDER_DEBIAN_KEYRING cannot be read",
            why=why,
            fix="name a file of OpenPGP certificates, binary or armoured",
            where=where_path(path),
        )
    return found


def verified(signed: bytes, keys: tuple[Cert, ...], *, url: str) -> str:
    """The text of a clear-signed file, only what the signature covers; `BadSignature` when no key vouches for it."""
    try:
        result = verify(bytes=signed, store=lambda _ids: list(keys))
    except RuntimeError as error:
        raise BadSignature(
            "the package index is not signed by a key we trust",
            why=_first_line(error),
            fix="use another mirror (BUILDER_DEBIAN_MIRROR); for a mirror with its own key, set BUILDER_DEBIAN_KEYRING",
            where=Where(file=url),
        ) from error
    if not result.valid_sigs or result.bytes is None:
        raise BadSignature("the package index carries no signature", where=Where(file=url))
    return result.bytes.decode()


def _first_line(error: Exception) -> str:
    """pysequoia puts a stack trace behind its message."""
    return str(error).split("\n", 1)[0]
