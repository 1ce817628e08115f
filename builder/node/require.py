"""What an image asks of its host by NVIDIA_REQUIRE_CUDA, and whether the nodes of a class meet it (FR-05, FR-06)."""

from __future__ import annotations

from collections.abc import Mapping

from builder.errors import BadInput
from builder.matrix import Question, explain, load_backend
from builder.matrix.targets import normalise_target
from builder.matrix.values import RuleVerdict
from builder.node.values import NodeClass

__all__ = ["requirement_met", "requirement_of"]

_VARIABLE = "NVIDIA_REQUIRE_CUDA"
_RULE = "require-cuda"


def requirement_of(env: Mapping[str, str]) -> str:
    """What the container runtime checks; an image that sets NVIDIA_DISABLE_REQUIRE asks for nothing."""
    return "" if env.get("NVIDIA_DISABLE_REQUIRE") else env.get(_VARIABLE, "").strip()


def requirement_met(text: str, node: NodeClass) -> RuleVerdict | None:
    """The matrix's rule on a whole expression, such as `cuda>=12.8 brand=tesla,driver>=550`.

    None when the class does not say its driver. An expression that cannot be read is unknown: who starts the image
    will see what the runtime makes of it.
    """
    backend = load_backend(node.backend)
    target = normalise_target(node.device_arch, backend.spec.targets) if node.device_arch else None
    question = Question(
        driver=node.driver,
        device=node.device,
        target=target,
        machine=node.arch,
        settings={_VARIABLE.lower().replace("_", "-"): text},
    )
    try:
        return next((rule for rule in explain(backend, question).rules if rule.rule == _RULE), None)
    except BadInput as error:
        return RuleVerdict(
            rule=_RULE,
            verdict="unknown",
            why=f"the image asks for {text!r}, which cannot be read: {error.what}",
            source="the image's own environment",
            fix=f"mend {_VARIABLE} of the base, or set NVIDIA_DISABLE_REQUIRE in the project's image.env",
        )
