"""The rule on what a package can do: its maker's list of gaps and of ways to run."""

from __future__ import annotations

import re

from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.tables import Row
from builder.matrix.values import RuleVerdict
from builder.matrix.versions import matches

__all__ = ["package_feature"]


def package_feature(question: Question, backend: Backend) -> RuleVerdict | None:
    """The feature that is asked for is not among what the maker says is missing from a named package.

    Source: each row of `about` names its own. What stands in neither list is not judged: lists of gaps are not
    complete. A feature is named by its words, in any order: `dynamic shapes` is `dynamic or symbolic shapes`.
    """
    feature = question.settings.get("feature")
    if feature is None:
        return None
    for row in backend.rows("about"):
        package = row.text("package") or ""
        version = question.packages.get(package)
        bounds = row.text("versions")
        if version is None or not (bounds is None or matches(version.partition("+")[0], (bounds,))):
            continue
        if (gap := _named(row, "gaps", feature)) is not None:
            return _verdict(row, f"{package} {version} is without {gap}", unsupported=True)
        if (mode := _named(row, "modes", feature)) is not None:
            return _verdict(row, f"{package} {version} has {mode} execution", unsupported=False)
    return None


def _named(row: Row, column: str, feature: str) -> str | None:
    return next((one for one in row.texts(column) or () if _words(feature) <= _words(one)), None)


def _verdict(row: Row, why: str, *, unsupported: bool) -> RuleVerdict:
    status = row.text("status")
    return RuleVerdict(
        rule="package-feature",
        verdict="unsupported" if unsupported else "supported",
        why=why + (f" ({status})" if status else ""),
        source=row.source.text,
        fix="another backend or package, or a program that does without it" if unsupported else "",
    )


def _words(text: str) -> frozenset[str]:
    """Words without endings of the plural: `sparse tensor` is in `sparse tensors`."""
    return frozenset(word.removesuffix("s") for word in re.split(r"[^a-z0-9]+", text.casefold())) - {""}
