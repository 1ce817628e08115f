"""Compatibility tables as typed rows; rules; the solver; explain."""

from builder.matrix.explain import explain
from builder.matrix.load import Backend, Tables, load_backend, load_tables
from builder.matrix.question import Question, parse_question
from builder.matrix.solve import solve
from builder.matrix.values import (
    BackendSpec,
    Explanation,
    IndexPin,
    Reason,
    Refusal,
    RuleVerdict,
    RunLine,
    Runtime,
    Solution,
    Stack,
    Verdict,
)

__all__ = [
    "Backend",
    "BackendSpec",
    "Explanation",
    "IndexPin",
    "Question",
    "Reason",
    "Refusal",
    "RuleVerdict",
    "RunLine",
    "Runtime",
    "Solution",
    "Stack",
    "Tables",
    "Verdict",
    "explain",
    "load_backend",
    "load_tables",
    "parse_question",
    "solve",
]
