"""The locked wheels of a plan in the one order in which every engine installs them."""

from __future__ import annotations

from builder.errors import BadInput
from builder.image.splice import WheelFile
from builder.image.values import ImagePlan

__all__ = ["wheel_files"]


def wheel_files(plan: ImagePlan) -> tuple[WheelFile, ...]:
    """By name, then file: where two wheels bring one path, the later one's file stays (install.py)."""
    missing = [package.file for package in plan.lock.packages if package.file not in plan.wheelhouse.files]
    if missing:
        raise BadInput(
            f"{len(missing)} locked wheels are not in the wheelhouse",
            why=f"first {missing[0]}",
            fix="fetch them first, or make a new lock",
        )
    found = [
        WheelFile(
            file=package.file,
            name=package.name,
            path=plan.wheelhouse.files[package.file],
            sha256=package.sha256,
            title=f"{package.name} {package.version}",
        )
        for package in plan.lock.packages
    ]
    return tuple(sorted(found, key=lambda wheel: (wheel.name, wheel.file)))
