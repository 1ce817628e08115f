"""Renews checks/policies/manylinux.toml from the data of an installed auditwheel: `python -m tests.audit.manylinux`."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Any

__all__ = ["PATH", "rendered"]

PATH = Path(__file__).parents[2] / "checks/policies/manylinux.toml"
ARCHES = ("x86_64", "aarch64")
FAMILIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC", "ZLIB", "LIBATOMIC")
HEAD = """\
# What the manylinux policies promise: the newest symbol versions a file may ask for, and the libraries it may take from
# any system (PEP 600 says by glibc, auditwheel says in full). Renewed by: python -m tests.audit.manylinux
#
# [libraries]  SONAME to the first glibc whose policy allows it
# [[policy]]   glibc      of the tag manylinux_<glibc>
#              aliases    older names of it
#              <machine>  family of symbol versions to the newest one

source = "pypa/auditwheel {version} src/auditwheel/policy/manylinux-policy.json, which the package holds"
"""


def rendered() -> str:
    """The file's text; `ModuleNotFoundError` without auditwheel."""
    data = resources.files("auditwheel").joinpath("policy/manylinux-policy.json").read_text(encoding="utf-8")
    policies = sorted(
        (policy for policy in json.loads(data) if policy["name"].startswith("manylinux")),
        key=lambda policy: numbers(glibc(policy)),
    )
    if len(policies) < 15:
        raise ValueError(f"{len(policies)} policies are too few to be true")
    since: dict[str, str] = {}
    for policy in policies:
        for name in policy["lib_whitelist"]:
            since.setdefault(name, glibc(policy))
    lines = [HEAD.format(version=importlib.metadata.version("auditwheel")), "[libraries]"]
    lines += [f'"{name}" = "{first}"' for name, first in sorted(since.items())]
    for policy in policies:
        lines += ["", "[[policy]]", f'glibc = "{glibc(policy)}"']
        if policy["aliases"]:
            lines.append(f"aliases = {json.dumps(policy['aliases'])}")
        for arch in ARCHES:
            newest = {family: best(policy["symbol_versions"].get(arch, {}).get(family, ())) for family in FAMILIES}
            pairs = ", ".join(f'{family} = "{version}"' for family, version in newest.items() if version)
            if pairs:
                lines.append(f"{arch} = {{ {pairs} }}")
    return "\n".join(lines) + "\n"


def glibc(policy: dict[str, Any]) -> str:
    return str(policy["name"]).removeprefix("manylinux_").replace("_", ".")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def best(versions: Any) -> str:
    """The newest; names such as ABI_DT_RELR are no versions."""
    return max((item for item in versions if re.fullmatch(r"[0-9.]+", item)), key=numbers, default="")


if __name__ == "__main__":
    PATH.write_text(rendered(), encoding="utf-8")
    sys.stdout.write(f"{PATH}\n")
