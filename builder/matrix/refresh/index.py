"""The JSON simple API of a package index (PEP 691): the published wheels of one package."""

from __future__ import annotations

import json
from collections.abc import Mapping

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from builder.errors import BadInput
from builder.matrix.schema import Cell
from builder.matrix.versions import sort_key

__all__ = ["torch_npu_rows"]


def torch_npu_rows(text: str) -> tuple[Mapping[str, Cell], ...]:
    """One row a version: first upload, Pythons, manylinux tags and architectures of its Linux wheels."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            "the index page is not JSON", why=str(error), fix="ask for application/vnd.pypi.simple.v1+json"
        ) from error
    files = data.get("files") if isinstance(data, dict) else None
    if not isinstance(files, list):
        raise BadInput("the index page has no list 'files'", fix="PEP 691: application/vnd.pypi.simple.v1+json")
    found: dict[str, dict[str, set[str]]] = {}
    for file in files:
        name = str(file.get("filename", ""))
        try:
            _, version, _, tags = parse_wheel_filename(name)
        except InvalidWheelFilename:
            continue
        row = found.setdefault(str(version), {"date": set(), "python": set(), "manylinux": set(), "arch": set()})
        if upload := str(file.get("upload-time", ""))[:10]:
            row["date"].add(upload)
        for tag in tags:
            platform = tag.platform
            if not platform.startswith("manylinux"):
                continue
            glibc, _, arch = platform.removeprefix("manylinux_").partition("_")
            minor, _, arch = arch.partition("_")
            if glibc.isdigit() and minor.isdigit():
                row["manylinux"].add(f"manylinux_{glibc}_{minor}")
                row["arch"].add(arch)
            row["python"].add(f"{tag.interpreter[2]}.{tag.interpreter[3:]}")
    return tuple(
        {
            "torch_npu": version,
            "upload_date": min(row["date"], default=""),
            "python_wheels": ";".join(sorted(row["python"], key=lambda text: tuple(map(int, text.split("."))))),
            "manylinux": ";".join(sorted(row["manylinux"])),
            "arch": ";".join(sorted(row["arch"])),
        }
        for version, row in sorted(found.items(), key=lambda item: sort_key(item[0]))
        if row["python"] and row["date"] and row["manylinux"]
    )
