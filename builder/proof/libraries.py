"""Which backend a library's name belongs to, and whether the node puts it into the container (checks/policies)."""

from __future__ import annotations

from builder.audit.tables import Library, Tables

__all__ = ["Libraries"]


class Libraries:
    """The audit's library table, asked the way the loader asks: by the exact SONAME."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def of(self, name: str) -> Library | None:
        """The row of a SONAME. A name with a hash, as wheel repair tools make it, is no vendor's SONAME."""
        base = name.rpartition("/")[2]
        row = self._tables.libraries.get(base.partition(".so")[0])
        return row if row is not None and ".so" in base else None

    def injected(self, name: str, backend: str) -> Library | None:
        """The row that says the nodes of this backend bring the library along."""
        row = self.of(name)
        return row if row is not None and row.host and row.backend == backend else None

    def foreign(self, name: str, backend: str) -> Library | None:
        """The row when the library is another backend's, and only that one's."""
        row = self.of(name)
        return row if row is not None and row.backend != backend and not row.shared else None
