"""`builder cache key`: what makes an engine valid, and the key it gives."""

from __future__ import annotations

import click

from builder.cli.cache_options import KeyOptions, key_options
from builder.cli.console import Console, shared_options

__all__ = ["command"]


@click.command("key", short_help="What makes an engine valid here: its properties, and the key they give.")
@key_options
@shared_options
def command(console: Console, wanted: KeyOptions) -> int:
    """What makes an engine of KIND valid: its properties, their values as far as they are stated, and the key.

    Without options it shows what the kind depends on. The key is the sha256 of the canonical JSON of all factors; exit
    code 4 says that something that decides is not stated, so that no engine can be kept under it yet. KIND is a table
    of matrices/engines: tensorrt, triton-nvidia, inductor, vllm, neff, mxr, om, openvino, jax-xla …
    """
    from builder.cache.keys import missing_factors
    from builder.cli.tabular import columns

    kind = wanted.engine_kind()
    key = wanted.key()
    missing = missing_factors(kind, key)
    verdict = "unknown" if missing else "ok"
    properties = [
        {
            "property": one.name,
            "value": key.factors.get(one.name),
            "group": one.group,
            "class": one.hold,
            "rule": one.rule,
            "default": one.default,
            "required": one.required,
            "why": one.why,
            "cost": one.cost,
            "source": one.source,
        }
        for one in kind.properties.values()
    ]
    document = {
        "schema": "builder/cache-key/1",
        "verdict": verdict,
        "kind": kind.name,
        "key": None if missing else str(key.digest),
        "factors": key.to_json(),
        "missing": list(missing),
        "properties": properties,
    }

    def text() -> str:
        rows = [
            [one.name, _shown(key.factors.get(one.name), required=one.required), one.hold, one.rule, one.why]
            for one in kind.properties.values()
        ]
        last = f"not stated: {', '.join(missing)}" if missing else str(key.digest)
        table = columns(("property", "value", "class", "rule", "why"), rows)
        return f"{kind.title}\n{table}\n{console.verdict(verdict)} {last}"

    console.document(document, text)
    return 4 if missing else 0


def _shown(value: str | None, *, required: bool) -> str:
    if value is None:
        return "? (must be stated)" if required else "?"
    return value or "(empty)"
