"""Whether a wheel installs on a system: its platform tag against the C library, its Python tag against the Python."""

from __future__ import annotations

import re

from builder.errors import BadInput
from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules.frameworks import system_libc
from builder.matrix.values import RuleVerdict
from builder.matrix.variants import variant_label
from builder.matrix.versions import sort_key

__all__ = ["wheel_tag"]

_SOURCE = "PEP 600, PEP 656; Python packaging platform compatibility tags specification"
_LEGACY = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}


def wheel_tag(question: Question, backend: Backend) -> RuleVerdict | None:
    """A wheel's tags fit the Python, C library and machine that are asked.

    Source: PEP 600 (manylinux_X_Y installs where glibc >= X.Y), PEP 656 (musl needs musllinux), platform compatibility
    tags specification (cpXY-cpXY needs exactly that CPython, cpXY-abi3 that or newer, py3-none any). FR-25.
    """
    text = question.settings.get("wheel")
    if text is None:
        return None
    python, abi, platforms = _tags(text)
    label = variant_label(text)
    libc = question.libc or system_libc(question.os, backend)
    problems = []
    if question.python is not None and not any(_runs(tag, abi, question.python) for tag in python.split(".")):
        problems.append(f"tag {python}-{abi} is not for Python {question.python}")
    judged = [_fits(platform, libc, question.machine) for platform in platforms.split(".")]
    if all(problem is not None for problem in judged):
        problems += [problem for problem in judged[-1:] if problem]
    if not problems and libc is None and question.python is None and question.machine is None:
        return None
    if problems:
        best = f"best tag accepted: manylinux_{libc.replace('.', '_')}" if libc and libc != "musl" else ""
        return RuleVerdict(
            rule="wheel-tag",
            verdict="unsupported",
            why="; ".join(problems) + (f"; {best}" if best else ""),
            source=_SOURCE,
            fix=_mend(problems),
        )
    where = f"glibc {libc}" if libc else "what was asked"
    why = f"{python}-{abi}-{platforms} fits {where}"
    if label is not None:
        why += f"; its variant label {label} (PEP 817, a draft) decides nothing"
    return RuleVerdict(rule="wheel-tag", verdict="supported", why=why, source=_SOURCE)


def _mend(problems: list[str]) -> str:
    """The change that would turn each kind of problem."""
    kinds = {
        "is not for Python": "a wheel for that Python (its own tag, an abi3 no newer, or py3-none), or the wheel's",
        "never installs on a musl": "a musllinux wheel, or a base image with glibc",
        "is for musl systems": "a manylinux wheel",
        "needs glibc": "a wheel built on an older system (manylinux_2_28 runs nearly everywhere), or a newer base",
        "is no tag of Linux": "a manylinux wheel",
        "is for ": "a wheel for that machine",
    }
    found = [next((mend for word, mend in kinds.items() if word in problem), "") for problem in problems]
    return "; ".join(dict.fromkeys(filter(None, found)))


def _tags(text: str) -> tuple[str, str, str]:
    label = variant_label(text)
    parts = text.removesuffix(".whl").removesuffix(f"-{label}").split("-")
    if len(parts) >= 3:
        return parts[-3], parts[-2], parts[-1]
    if len(parts) == 1 and re.match(r"(manylinux|musllinux|linux|any|win|macosx)", parts[0]):
        return "py3", "none", parts[0]
    raise BadInput(f"wheel={text}: neither a wheel's name nor a platform tag", fix="e.g. manylinux_2_28_x86_64")


def _runs(tag: str, abi: str, python: str) -> bool:
    match = re.fullmatch(r"(cp|py)(\d)(\d*)", tag)
    if match is None:
        return False
    major, minor = match[2], match[3]
    free = python.endswith("t")
    have = python.rstrip("t").split(".")
    if match[1] == "py":
        return have[0] == major and (not minor or int(have[1]) >= int(minor))
    if abi == "abi3":
        return not free and have[0] == major and int(have[1]) >= int(minor or 0)
    return have == [major, minor] and abi.endswith("t") == free


def _fits(platform: str, libc: str | None, machine: str | None) -> str | None:
    """What is wrong with one platform tag; None when nothing is."""
    if platform == "any":
        return None
    match = re.fullmatch(r"(manylinux|musllinux)(?:_(\d+)_(\d+)|(1|2010|2014))_(\w+)", platform)
    if match is None:
        return f"{platform} is no tag of Linux wheels" if not platform.startswith("linux") else None
    if machine is not None and match[5] != machine:
        return f"{platform} is for {match[5]}, not {machine}"
    if libc is None:
        return None
    if match[1] == "musllinux":
        return None if libc == "musl" else f"{platform} is for musl systems"
    if libc == "musl":
        return f"{platform} never installs on a musl system"
    need = f"{match[2]}.{match[3]}" if match[2] else _LEGACY[f"manylinux{match[4]}"]
    return None if sort_key(libc) >= sort_key(need) else f"{platform} needs glibc >= {need}, the system has {libc}"
