"""What the objects of an image ask of the node's processor, device and driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from builder.matrix.explain import explain
from builder.matrix.load import Backend
from builder.matrix.question import Question
from builder.matrix.targets import covers, normalise_target
from builder.node.require import requirement_met, requirement_of
from builder.node.values import NodeClass
from builder.proof.objects import ElfObject
from builder.proof.values import Answer, CpuNeed, DeviceCoverage, DriverNeed, Weight, worst_answer

__all__ = ["cpu_needs", "device_coverage", "driver_need", "level_number"]

WeightOf = Callable[[str], tuple[Weight, str]]
"""How much a fault of the object at a path matters, and why not more."""

_DRIVER_RULES = frozenset({"driver-floor", "driver-window", "device-driver"})


def level_number(level: str | None) -> int | None:
    """3 of `x86-64-v3`; None for anything else."""
    match = re.fullmatch(r"x86-64-v([1-4])", level or "")
    return int(match[1]) if match else None


def _weighed(answer: Answer, weight: Weight) -> Answer:
    """The answer for the whole image: an optional object decides nothing, an undecided one leaves it open."""
    if weight == "optional":
        return "proven"
    return "unknown" if weight == "undecided" and answer == "refused" else answer


def cpu_needs(objects: Iterable[tuple[str, ElfObject]], node: NodeClass, weight_of: WeightOf) -> tuple[CpuNeed, ...]:
    """Objects that need more than x86-64-v1, heaviest need first.

    The loader refuses an object whose needed level the processor lacks ("CPU ISA level is lower than required"). Most
    objects say nothing: they run on the baseline or look at the processor themselves, and no answer rests on them.
    """
    have = level_number(node.cpu_level)
    needs = []
    for path, item in objects:
        if item.isa_level <= 1:
            continue
        weight, excuse = weight_of(path)
        wanted = f"x86-64-v{item.isa_level}"
        if have is None:
            answer: Answer = "unknown"
            why = f"needs {wanted}; the node class does not say its cpu_level"
        elif item.isa_level <= have:
            answer, why = "proven", f"needs {wanted}, the node has {node.cpu_level}"
        else:
            answer, why = "refused", f"needs {wanted}, the node has {node.cpu_level}"
        if answer != "proven" and excuse:
            why += f" ({weight}: {excuse})"
        needs.append(CpuNeed(object=path, level=wanted, answer=_weighed(answer, weight), weight=weight, why=why))
    return tuple(sorted(needs, key=lambda need: (need.level, need.object), reverse=True))


def device_coverage(
    objects: Iterable[tuple[str, ElfObject]], node: NodeClass, backend: Backend, weight_of: WeightOf
) -> tuple[DeviceCoverage, ...]:
    """Objects with device code of the node's vendor, and whether any of it runs there."""
    scheme = backend.spec.targets
    if scheme not in ("sm", "gfx"):
        return ()
    own = normalise_target(node.device_arch, scheme) if node.device_arch else None
    device = own and normalise_target(node.code_target or own, scheme)
    found = []
    for path, item in sorted(objects):
        code, ptx = (item.device.sm, item.device.ptx) if scheme == "sm" else (item.device.gfx, ())
        if not code and not ptx:
            continue
        weight, excuse = weight_of(path)
        by, answer, why = _covered(code, ptx, device, scheme == "sm")
        if device != own:
            why += f"; the device is {own}, its node class overrides that at its operator's risk"
        if answer != "proven" and code and not ptx and all(target[-1] in "af" for target in code) and scheme == "sm":
            weight, excuse = "optional", "it holds only variants for single architectures, chosen by the code itself"
        if answer != "proven" and excuse:
            why += f" ({weight}: {excuse})"
        found.append(
            DeviceCoverage(
                object=path, targets=code + ptx, by=by, answer=_weighed(answer, weight), weight=weight, why=why
            )
        )
    return tuple(found)


def _covered(
    code: tuple[str, ...], ptx: tuple[str, ...], device: str | None, nvidia: bool
) -> tuple[tuple[str, ...], Answer, str]:
    if device is None:
        return (), "unknown", "the node class does not say its device_arch"
    compiled = covers("sm" if nvidia else "gfx", code, device)
    if compiled is not None:
        return (compiled,), "proven", compiled if compiled == device else f"{compiled} runs on {device}"
    jit = covers("sm", (), device, ptx) if nvidia else None
    if jit is not None:
        why = f"no compiled code for {device}; its driver compiles {jit} when it is first used, a slow start"
        return (jit,), "proven", why
    return (), "refused", f"nothing in it runs on {device}: {', '.join(code + ptx)}"


def driver_need(
    backend: Backend, node: NodeClass, *, toolkit: str | None, toolkit_source: str, env: Mapping[str, str]
) -> DriverNeed:
    """The matrix's rules on driver and device, for the toolkit the image says it has."""
    if backend.spec.toolkit is None:
        return DriverNeed(answer="proven", why=f"backend {backend.name} has no device driver")
    name = backend.spec.toolkit
    driver = node.driver
    if toolkit is None:
        why = f"nothing in the image says which {name} it is for"
        return DriverNeed(answer="unknown", why=why, driver=driver)
    if driver is None:
        why = f"{name} {toolkit} ({toolkit_source}) needs a driver; the node class does not say its own"
        return DriverNeed(answer="unknown", why=why, toolkit=toolkit)
    target = normalise_target(node.device_arch, backend.spec.targets) if node.device_arch else None
    question = Question(toolkit=toolkit, driver=driver, firmware=node.firmware, target=target, machine=node.arch)
    rules = [rule for rule in explain(backend, question).rules if rule.rule in _DRIVER_RULES]
    # Checked by the container runtime, and stricter than minor-version compatibility (FR-05).
    asked = requirement_of(env)
    if asked and (answered := requirement_met(asked, node)) is not None:
        rules.append(answered)
    answers: dict[str, Answer] = {"supported": "proven", "unsupported": "refused", "unknown": "unknown"}
    if not rules:
        why = f"no rule of the matrix speaks of {name} {toolkit} and driver {driver}"
        return DriverNeed(answer="unknown", why=why, toolkit=toolkit, driver=driver)
    answer = worst_answer(tuple(answers[rule.verdict] for rule in rules))
    deciding = next(rule for rule in rules if answers[rule.verdict] == answer)
    return DriverNeed(
        answer=answer,
        why=f"{deciding.why} ({toolkit_source})",
        toolkit=toolkit,
        driver=driver,
        rules=tuple(rules),
    )
