"""What an image says about the engines that are compiled in it: versions of its lock, its toolkit, its compiler."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from builder.cache.kinds import EngineKind, engine_kind
from builder.errors import BadInput, did_you_mean
from builder.image.labels import ImageFacts
from builder.smoke.values import Command, Container

__all__ = ["choose_kind", "compiler_of", "fitting_kinds", "image_properties"]

_TOOLKITS = MappingProxyType({"cuda": "cuda", "rocm": "rocm", "npu": "cann"})
_DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "flashinfer": ("flashinfer-python",),
        "onnxruntime": ("onnxruntime-gpu", "onnxruntime-rocm", "onnxruntime-migraphx", "onnxruntime-openvino"),
        "tensorrt": ("tensorrt-cu13", "tensorrt-cu12"),
        "triton": ("triton-ascend", "pytorch-triton-rocm", "triton-rocm"),
    }
)
"""Property to the distributions that are the same thing under another name."""

_COMPILER = '"${CXX:-c++}" --version 2>/dev/null | head -n 1'


def image_properties(kind: EngineKind, facts: ImageFacts) -> dict[str, str]:
    """The properties of a kind that an image's labels state: versions of what builds the engines."""
    found: dict[str, str] = {}
    for name, one in kind.properties.items():
        if one.group != "builder":
            continue
        names = (name, *_DISTRIBUTIONS.get(name, ()))
        version = next((facts.packages[other] for other in names if other in facts.packages), None)
        if version is None and facts.toolkit is not None and name in ("toolkit", _TOOLKITS.get(facts.backend)):
            version = facts.toolkit
        if version is not None:
            found[name] = version
    return found


def choose_kind(asked: str | None, facts: ImageFacts, known: Collection[str]) -> EngineKind:
    """The kind that was asked for, else the one whose builders the image holds; `BadInput` when there are several.

    `known`: the kinds whose folder a program can be told.
    """
    if asked is not None:
        kind = engine_kind(asked)
        if asked not in known:
            raise BadInput(
                f"nothing tells a program where to keep its {asked} engines",
                why="that is set in the program itself",
                fix="name the environment variable that the program reads: --variable NAME",
            )
        return kind
    fitting = fitting_kinds(known, facts)
    if len(fitting) == 1:
        return fitting[0]
    names = [kind.name for kind in fitting]
    raise BadInput(
        "which engines are meant?",
        why=f"the image could make {', '.join(names)}" if names else "the image's lock holds nothing that is known to",
        fix=f"--kind {names[0]}" if names else did_you_mean("", known),
    )


def fitting_kinds(known: Collection[str], facts: ImageFacts) -> tuple[EngineKind, ...]:
    """Of the known kinds those whose builders the image holds."""
    return tuple(kind for kind in map(engine_kind, sorted(known)) if _built_in(kind, facts))


def _built_in(kind: EngineKind, facts: ImageFacts) -> bool:
    """Whether the labels tell every version that such an engine depends on, of at least one distribution."""
    told = image_properties(kind, facts)
    wanted = [name for name in kind.required if kind.properties[name].group == "builder"]
    of_cpu = {name for name in wanted if facts.backend == "cpu" and kind.properties[name].node == "toolkit-of-cpu"}
    return bool(told.keys() & set(wanted)) and not set(wanted) - told.keys() - of_cpu


def compiler_of(kind: EngineKind, container: Container) -> dict[str, str]:
    """The C++ compiler of the image, where that decides; nothing when there is none."""
    if "compiler" not in kind.properties:
        return {}
    done = container.run(Command(argv=("/bin/sh", "-c", _COMPILER), timeout=60))
    said = done.stdout.decode(errors="replace").strip()
    return {"compiler": said} if said else {}
