"""What can go wrong between this tool and a registry or layout, by kind."""

from __future__ import annotations

from builder.errors import OutsideFailed, Refused
from builder.names import Digest

__all__ = [
    "DamagedLayout",
    "DeletionNotAllowed",
    "MissingContent",
    "Offline",
    "RegistryBusy",
    "RegistryDenied",
    "RegistryRefused",
    "RegistryUnreachable",
    "TagMoved",
]


class RegistryUnreachable(OutsideFailed):
    """No answer: name resolution, connection, TLS or a connection cut more often than it is tried again."""

    kind = "registry-unreachable"


class RegistryDenied(OutsideFailed):
    """The registry or its token server wants other credentials (401, 403)."""

    kind = "registry-denied"


class RegistryRefused(OutsideFailed):
    """The registry answered, and its answer is an error or makes no sense."""

    kind = "registry-refused"

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", status: int | None = None, codes: tuple[str, ...] = ()
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.status = status
        self.codes = codes
        """The registry's own error codes (distribution-spec, "Error Codes")."""


class RegistryBusy(OutsideFailed):
    """The registry kept answering with a temporary code (429, 502, 503, 504) or asks for a longer wait than ours."""

    kind = "registry-busy"


class MissingContent(OutsideFailed):
    """A blob or manifest that something points at is not there."""

    kind = "missing-content"


class DamagedLayout(OutsideFailed):
    """The files of an OCI layout on disk do not make sense."""

    kind = "damaged-layout"


class Offline(OutsideFailed):
    """A registry on the network was asked for under --offline."""

    kind = "offline"


class DeletionNotAllowed(Refused):
    """The registry deletes nothing by its API."""

    kind = "deletion-not-allowed"


class TagMoved(Refused):
    """A tag does not point at what the caller expects to replace: somebody else moved it."""

    kind = "tag-moved"

    def __init__(self, tag: str, *, repository: str, expected: Digest | None, found: Digest | None) -> None:
        self.tag = tag
        self.expected = expected
        self.found = found
        super().__init__(
            f"tag {tag!r} of {repository} was not moved",
            why=f"it points at {found or 'nothing'}, expected {expected or 'nothing'}: somebody else moved it",
            fix="look at what is there now (`builder images`) and decide again",
        )
