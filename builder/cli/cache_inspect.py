"""`builder cache inspect`: what an engine says about itself."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.console import Console, shared_options

__all__ = ["command"]


@click.command("inspect", short_help="What an engine says about itself, without loading it.")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--format", "form", default=None, help="Its format [default: found from its bytes].")
@shared_options
def command(console: Console, path: Path, form: str | None) -> int:
    """What an engine says about itself, without loading it.

    PATH is a file (TensorRT plan, NEFF, MXR, OM, mega-cache, .pt2, OpenVINO, JAX, ONNX, cubin …) or a folder of
    Triton, Inductor, vLLM or FlashInfer. What its format has no word for is listed too: that must be stated when the
    engine is kept.
    """
    from builder.cache.formats import read_engine
    from builder.cache.told import FORMAT_KINDS, told_factors

    header = read_engine(path, format=form)
    factors = {kind: told_factors(kind, header) for kind in FORMAT_KINDS.get(header.format, ())}
    document = {
        "schema": "builder/cache-inspect/1",
        "verdict": "ok",
        "path": str(path),
        "format": header.format,
        "properties": dict(header.properties),
        "unknown": dict(header.unknown),
        "notes": list(header.notes),
        "factors": factors,
    }

    def text() -> str:
        lines = [f"{path}: {header.format}"]
        lines += [f"  {name}: {value}" for name, value in header.properties.items()]
        lines += [f"  {name}: not said; {why}" for name, why in header.unknown.items()]
        lines += [f"  note: {note}" for note in header.notes]
        return "\n".join(lines)

    console.document(document, text)
    return 0
