"""The rules, in one list. Each is a small pure function that answers supported, unsupported or unknown, or None when
it has nothing to say about the combination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.rules.devices import (
    device_known,
    framework_ptx,
    framework_target,
    target_features,
    toolkit_target,
)
from builder.matrix.rules.driver import device_driver, driver_floor, driver_window
from builder.matrix.rules.features import package_feature
from builder.matrix.rules.forward import forward_compatibility
from builder.matrix.rules.frameworks import (
    framework_libc,
    framework_machine,
    framework_python,
    framework_set,
)
from builder.matrix.rules.images import image_contents, image_requirement
from builder.matrix.rules.labels import framework_label
from builder.matrix.rules.members import (
    framework_parts,
    package_known,
    package_pins,
    release_members,
    shared_packages,
)
from builder.matrix.rules.runtime import hsa_override, neff_features, pjrt_api, require_met, runtime_compat
from builder.matrix.rules.wheels import wheel_tag
from builder.matrix.values import RuleVerdict

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule, the parts of a question it reads, and the kind of table it needs."""

    name: str
    keys: tuple[str, ...]
    """Parts of `Question` that must be known; `packages` is any distribution."""
    kinds: tuple[str, ...]
    """It speaks for backends that have a table of one of these kinds."""
    check: Callable[[Question, Backend], RuleVerdict | None]
    speaks: Callable[[Backend], bool] = lambda backend: True
    """Whether the backend's tables hold what the rule reads, beyond the kind."""

    asked_only: bool = False
    """Whether it is told only when its own part was named: nobody needs to name it."""
    toolkit_of_set: bool = False
    """Whether a toolkit nobody named may be that of the packages asked for."""


def _has_targets(backend: Backend) -> bool:
    return backend.spec.targets != "none"


def _is_amd(backend: Backend) -> bool:
    return backend.spec.targets == "gfx"


def _has_driver_limits(backend: Backend) -> bool:
    return any({"driver_last", "driver_first"} & row.cells.keys() for row in backend.rows("device"))


RULES: tuple[Rule, ...] = (
    Rule(
        name="driver-floor",
        keys=("toolkit", "driver"),
        kinds=("driver-floor",),
        check=driver_floor,
        toolkit_of_set=True,
    ),
    Rule(
        name="driver-window",
        keys=("toolkit", "driver"),
        kinds=("driver-window",),
        check=driver_window,
        toolkit_of_set=True,
    ),
    Rule(name="device-known", keys=("device",), kinds=("device",), check=device_known),
    Rule(
        name="device-driver",
        keys=("target", "driver"),
        kinds=("device",),
        check=device_driver,
        speaks=_has_driver_limits,
    ),
    Rule(name="toolkit-target", keys=("toolkit", "target"), kinds=("target",), check=toolkit_target),
    Rule(name="framework-set", keys=("packages",), kinds=("set",), check=framework_set),
    Rule(name="framework-label", keys=("packages",), kinds=("set",), check=framework_label),
    Rule(
        name="framework-target",
        keys=("packages", "target"),
        kinds=("set",),
        check=framework_target,
        speaks=_has_targets,
    ),
    Rule(name="framework-python", keys=("packages", "python"), kinds=("set",), check=framework_python),
    Rule(name="framework-machine", keys=("packages", "machine"), kinds=("set",), check=framework_machine),
    Rule(name="framework-ptx", keys=("packages", "target", "driver"), kinds=("driver-branch",), check=framework_ptx),
    Rule(name="framework-parts", keys=("packages",), kinds=("set",), check=framework_parts),
    Rule(name="release-members", keys=("packages",), kinds=("release",), check=release_members),
    Rule(name="shared-packages", keys=("packages",), kinds=("set",), check=shared_packages),
    Rule(name="package-known", keys=("packages",), kinds=("set",), check=package_known, toolkit_of_set=True),
    Rule(
        name="package-feature", keys=("packages", "settings"), kinds=("about",), check=package_feature, asked_only=True
    ),
    Rule(name="package-pins", keys=("packages",), kinds=("pins",), check=package_pins),
    Rule(
        name="forward-compatibility",
        keys=("packages", "driver"),
        kinds=("forward-compat",),
        check=forward_compatibility,
        asked_only=True,
    ),
    Rule(
        name="require-cuda",
        keys=("settings", "driver"),
        kinds=("driver-branch",),
        check=require_met,
        asked_only=True,
    ),
    Rule(
        name="target-features",
        keys=("target", "features"),
        kinds=("device",),
        check=target_features,
        speaks=_is_amd,
        asked_only=True,
    ),
    Rule(
        name="hsa-override",
        keys=("settings", "target"),
        kinds=("device",),
        check=hsa_override,
        speaks=_is_amd,
        asked_only=True,
    ),
    Rule(name="image", keys=("settings",), kinds=("image",), check=image_contents),
    Rule(name="require-cuda", keys=("settings", "driver"), kinds=("image",), check=image_requirement, asked_only=True),
    Rule(name="runtime-compat", keys=("settings",), kinds=("set",), check=runtime_compat),
    Rule(name="neff-features", keys=("settings",), kinds=("set",), check=neff_features),
    Rule(name="pjrt-api", keys=("settings",), kinds=("set",), check=pjrt_api),
    Rule(name="wheel-tag", keys=("settings",), kinds=("os",), check=wheel_tag),
    Rule(name="framework-libc", keys=("packages", "libc"), kinds=("set",), check=framework_libc),
)
