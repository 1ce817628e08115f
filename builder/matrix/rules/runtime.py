"""Rules on what a runtime checks when it starts or loads: requirements of an image, file formats, plug-in interfaces.

These speak when the question names what was read from an image, an artefact or a log, beside the usual keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from builder.errors import BadInput
from builder.matrix.load import Backend
from builder.matrix.products import device_row
from builder.matrix.question import Question
from builder.matrix.require import PROPERTIES, Term, met, parse_requirement
from builder.matrix.rules.driver import reported_toolkit
from builder.matrix.rules.forward import hardware
from builder.matrix.values import RuleVerdict
from builder.matrix.versions import parse, sort_key
from builder.names import GFX_OVERRIDE, overridden_target

__all__ = ["hsa_override", "neff_features", "pjrt_api", "require_met", "runtime_compat"]


def require_met(question: Question, backend: Backend) -> RuleVerdict | None:
    """The host meets the requirement an image carries, which legacy mode checks and CDI modes do not.

    Source: NVIDIA/nvidia-container-toolkit@d34b3046; NVIDIA/libnvidia-container src/dsl.c@5823754b. `cuda` is the CUDA
    version of the host driver, so minor-version compatibility does not lift it (FR-05). NVIDIA_DISABLE_REQUIRE=true
    switches the check off. A data-centre board is of any brand that NVIDIA's images list: none of those is GeForce.
    """
    text = question.settings.get("nvidia-require-cuda")
    if text is None or question.driver is None:
        return None
    groups = parse_requirement(text)
    offered = reported_toolkit(backend, question.driver)
    offers = f"driver {question.driver} offers CUDA {offered or '(not known)'}"
    source = "NVIDIA/nvidia-container-toolkit@d34b3046 (2026-08-21); NVIDIA/libnvidia-container src/dsl.c@5823754b"
    if question.settings.get("nvidia-disable-require", "").casefold() in ("1", "true"):
        why = f"NVIDIA_DISABLE_REQUIRE switches the check of {text!r} off; {offers}"
        return RuleVerdict(rule="require-cuda", verdict="supported", why=why, source=source)
    host = {"driver": question.driver}
    if offered is not None:
        host["cuda"] = offered
    capability = re.fullmatch(r"sm_(\d+)(\d)[af]?", question.target or "")
    if capability is not None:
        host["arch"] = f"{capability[1]}.{capability[2]}"
    brands = _brands(question, backend)
    answers = {met(groups, host if brand is None else {**host, "brand": brand}) for brand in brands}
    answer = answers.pop() if len(answers) == 1 else None
    if answer is None:
        asked = {term.property for group in groups for term in group}
        stray = sorted(asked - {*PROPERTIES})
        lacking = sorted(asked & {"brand", "arch"} - host.keys())
        why = f"whether the host meets {text!r} depends on " + " and ".join(
            [f"its {name}" for name in lacking]
            + [f"how {name} is read: the Go code skips it, to the C code it is an invalid expression" for name in stray]
        )
        if question.device is None:
            fix = "name the device"
        elif "brand" in lacking:
            fix = "give brand=, as nvidia-smi --query prints it"
        else:
            fix = f"a requirement on {', '.join(PROPERTIES)} alone"
        return RuleVerdict(rule="require-cuda", verdict="unknown", why=f"{why}; {offers}", source=source, fix=fix)
    if answer:
        why = f"{offers}: the host meets {text!r}"
        return RuleVerdict(rule="require-cuda", verdict="supported", why=why, source=source)
    return RuleVerdict(
        rule="require-cuda",
        verdict="unsupported",
        why=f"{offers}, the image asks {text!r}: a container engine in legacy mode refuses it at start; "
        "minor-version compatibility does not lift that, under CDI nothing is checked",
        source=source,
        fix=_meet(groups, {**host, **({"brand": brands[0]} if brands[0] is not None else {})}, backend, offered),
    )


def _meet(groups: tuple[tuple[Term, ...], ...], host: Mapping[str, str], backend: Backend, offered: str | None) -> str:
    """What would meet the alternative of which the host misses least: the terms it does not meet, in words."""
    missed = min(
        ([term for term in group if met(((term,),), host) is False] for group in groups), key=lambda terms: len(terms)
    )
    words = []
    for term in missed:
        match term.property:
            case "cuda":
                words.append(_driver_for(str(term), backend))
            case "driver":
                words.append(f"a {term}")
            case "arch":
                words.append(f"a device of compute capability {term.operator}{term.value}")
            case _:
                words.append(f"a board of {term}")
    fix = " and ".join(words)
    return fix + (
        f", or a build for CUDA {offered}" if offered and any(one.property == "cuda" for one in missed) else ""
    )


_LISTED_BRANDS = (
    "unknown",
    "grid",
    "tesla",
    "nvidia",
    "quadro",
    "quadrortx",
    "nvidiartx",
    "vapps",
    "vpc",
    "vcs",
    "vws",
    "cloudgaming",
)
"""Brands that the images of CUDA 13.0 list beside their own release (NVIDIA CUDA image sources)."""


def _brands(question: Question, backend: Backend) -> tuple[str | None, ...]:
    """The brand that was named or that the product's name tells; else those a data-centre board may be of."""
    told = question.settings.get("brand")
    if told is not None:
        return (re.sub(r"[^a-z]", "", told.casefold()),)
    brand = _brand(question.device)
    if brand is not None:
        return (brand,)
    known = question.device is not None and device_row(backend, question.device) is not None
    return _LISTED_BRANDS if known and hardware(question, backend) == "datacentre" else (None,)


def _driver_for(text: str, backend: Backend) -> str:
    """The oldest driver branch that offers the CUDA a term asks for: `cuda>=12.8` → `driver 570 or newer`."""
    asked = re.fullmatch(r"cuda(>=|>|=)(\d+\.\d+)", text)
    if asked is not None:
        able = [
            row.text("branch") or ""
            for row in backend.rows("driver-branch")
            if met(parse_requirement(text), {"cuda": row.text("toolkit") or ""})
        ]
        if able:
            return f"driver {min(able, key=sort_key)}" + ("" if asked[1] == "=" else " or newer")
    return f"a driver that offers {text}"


def _brand(device: str | None) -> str | None:
    name = (device or "").casefold()
    for word, brand in (("geforce", "geforce"), ("quadro", "quadro"), ("titan", "titan"), ("tesla", "tesla")):
        if word in name:
            return brand
    return "geforce" if re.search(r"\b(?:rtx|gtx) ?\d{4}\b", name) and "ada" not in name else None


def hsa_override(question: Question, backend: Backend) -> RuleVerdict | None:
    """HSA_OVERRIDE_GFX_VERSION is never support: it makes the runtime treat a device as another.

    An operator may take the risk for one node class, by recording it there: then nothing stands against it, and nobody
    vouches for it. Source: community threads (the maker does not support it); ROCm/rocBLAS 1339 and others (FR-09): an
    override equal to the device itself has no effect.
    """
    text = question.settings.get("hsa-override-gfx-version")
    target = question.target
    if text is None or target is None:
        return None
    named = overridden_target(text)
    source = "LLVM AMDGPU usage guide (stored copies); community threads (stored)"
    if named == target:
        why = f"{text} is {named}, what the device is already: the override has no effect"
        return RuleVerdict(
            rule="hsa-override", verdict="unsupported", why=why, source=source, fix="a build with code for the device"
        )
    if question.override_of is not None:
        return RuleVerdict(
            rule="hsa-override",
            verdict="unknown",
            why=f"warning: node class {question.override_of} runs code for {named} on {target} "
            f"(env {GFX_OVERRIDE}={text}), at its operator's risk: AMD does not support it",
            source=source,
            fix=f"--allow-unknown where the risk is taken; a build with code for {target} has none",
        )
    return RuleVerdict(
        rule="hsa-override",
        verdict="unsupported",
        why=f"code for {named} is not code for {target}; the override forces it, the maker does not support that: for "
        "one node class at the operator's risk and recorded there, never inside an image",
        source=source,
        fix=f'a build with code for {target}; or take the risk for one node class: env = ["{GFX_OVERRIDE}={text}"] in '
        "its file",
    )


def runtime_compat(question: Question, backend: Backend) -> RuleVerdict | None:
    """The runtime compatibility id of an image is within the range the host driver supports.

    Source: aws-neuron-sdk nrt-troubleshoot.rst@81ce03ae; aws-neuron/aws-neuron-sdk#655 (FR-14).
    """
    wanted, offered = question.settings.get("runtime-compat-id"), question.settings.get("driver-compat-ids")
    if wanted is None or offered is None:
        return None
    match = re.fullmatch(r"(\d+)(?:\s*(?:-|to|\.\.)\s*(\d+))?", offered)
    if match is None or not wanted.isdigit():
        raise BadInput(
            f"runtime-compat-id={wanted}, driver-compat-ids={offered}", fix="a number and a range such as 2-4"
        )
    low, high = int(match[1]), int(match[2] or match[1])
    good = low <= int(wanted) <= high
    return RuleVerdict(
        rule="runtime-compat",
        verdict="supported" if good else "unsupported",
        why=f"the runtime's compatibility id is {wanted}, the driver supports {low} to {high}",
        source="aws-neuron-sdk neuron-runtime/nrt-troubleshoot.rst@81ce03ae; aws-neuron/aws-neuron-sdk#655",
        fix="" if good else "upgrade the host driver, or use the runtime of the matching SDK",
    )


def neff_features(question: Question, backend: Backend) -> RuleVerdict | None:
    """Every feature bit of a NEFF is one the runtime knows.

    Source: aws-neuron-sdk nrt-troubleshoot.rst@81ce03ae (version and feature bits are checked on load);
    aws-neuron/aws-neuron-sdk#1061 (FR-15).
    """
    wanted, known = question.settings.get("neff-features"), question.settings.get("runtime-neff-features")
    if wanted is None or known is None:
        return None
    try:
        bits, mask = int(wanted, 0), int(known, 0)
    except ValueError as error:
        raise BadInput(f"neff-features={wanted}, runtime-neff-features={known}", fix="masks such as 0x100") from error
    stray = bits & ~mask
    return RuleVerdict(
        rule="neff-features",
        verdict="unsupported" if stray else "supported",
        why=f"the NEFF uses feature bits {bits:#x}, the runtime knows {mask:#x}"
        + (f": {stray:#x} is not inside" if stray else ""),
        source="aws-neuron-sdk neuron-runtime/nrt-troubleshoot.rst@81ce03ae; aws-neuron/aws-neuron-sdk#1061",
        fix="compile with the compiler of the runtime's SDK, or raise the runtime" if stray else "",
    )


def pjrt_api(question: Question, backend: Backend) -> RuleVerdict | None:
    """Framework and plug-in speak the same PJRT interface.

    Source: pytorch/xla#6949 (FR-16): a framework built for API 0.40 stops at the first device query of a plug-in that
    speaks 0.47.
    """
    framework, plugin = question.settings.get("framework-pjrt-api"), question.settings.get("plugin-pjrt-api")
    if framework is None or plugin is None:
        return None
    ours, theirs = parse(framework), parse(plugin)
    if ours is None or theirs is None:
        raise BadInput(f"framework-pjrt-api={framework}, plugin-pjrt-api={plugin}", fix="versions such as 0.47")
    good = ours == theirs
    return RuleVerdict(
        rule="pjrt-api",
        verdict="supported" if good else "unsupported",
        why=f"the framework was built for PJRT API {framework}, the plug-in speaks {plugin}",
        source="pytorch/xla#6949",
        fix="" if good else "the plug-in build recorded for that framework release",
    )
