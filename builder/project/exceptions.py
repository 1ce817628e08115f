"""Findings of the audit that a project lives with for a while: the rows of `[[exception]]`, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from packaging.utils import canonicalize_name

from builder.errors import did_you_mean

__all__ = ["AuditException", "parse_exceptions"]

_KEYS = {"package": str, "rule": str, "reason": str, "expires": date}


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditException:
    """A project's decision to live with a finding until a day."""

    package: str
    """Normalised distribution name."""
    rule: str
    """Rule of the finding, e.g. foreign-device; may hold shell-style wildcards."""
    reason: str
    expires: date
    """The last day on which it counts."""


def parse_exceptions(rows: Iterable[Any]) -> tuple[tuple[AuditException, ...], tuple[tuple[str, str], ...]]:
    """The exceptions, and what is wrong with the rest as (what, fix)."""
    found: list[AuditException] = []
    wrong: list[tuple[str, str]] = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            wrong.append(
                (f"exception[{number}] is no table", "write [[exception]] with package, rule, reason, expires")
            )
            continue
        faults = [(f"exception[{number}]: unknown key {key!r}", did_you_mean(key, _KEYS)) for key in row.keys() - _KEYS]
        for key, kind in _KEYS.items():
            value = row.get(key)
            if not isinstance(value, kind) or isinstance(value, datetime) or not value:
                example = "expires = 2027-03-01" if kind is date else f'{key} = "…"'
                faults.append((f"exception[{number}]: {key} is missing or not a {kind.__name__}", f"write {example}"))
        wrong += faults
        if not faults:
            found.append(AuditException(**{**row, "package": canonicalize_name(row["package"])}))
    return tuple(found), tuple(wrong)
