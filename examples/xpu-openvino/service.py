"""Finds edges in pictures, on an Intel GPU through OpenVINO.

    python service.py < frames.jsonl      one JSON answer per line of {"id": …, "pixels": [[0..255, …], …]}
    python service.py --once              one known batch; exit 0 only when the answer is right

The network is built in code: two Sobel filters and their magnitude.
There is no fall-back: without an Intel GPU the program stops and says so.
"""

import argparse
import json
import sys

import numpy as np
import openvino as ov
from openvino import opset13 as ops

SOBEL = np.array([[[[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]]], [[[-1, -2, -1], [0, 0, 0], [1, 2, 1]]]], dtype=np.float32)


def network() -> ov.Model:
    """Float32 (1, 1, height, width) pixels to (1, 1, height - 2, width - 2) edge strengths."""
    pixels = ops.parameter([1, 1, -1, -1], np.float32, name="pixels")
    slopes = ops.convolution(pixels, ops.constant(SOBEL), [1, 1], [0, 0], [0, 0], [1, 1])
    squares = ops.multiply(slopes, slopes)
    strength = ops.sqrt(ops.reduce_sum(squares, ops.constant(np.array([1], dtype=np.int64)), keep_dims=True))
    return ov.Model([strength], [pixels], "edges")


def compile_on(device: str) -> ov.CompiledModel:
    """The network compiled for a device ("GPU"); exits when it is not there."""
    core = ov.Core()
    if not any(found.split(".")[0] == device for found in core.available_devices):
        sys.exit(f"no Intel {device} here: OpenVINO sees {', '.join(core.available_devices) or 'nothing'}")
    return core.compile_model(network(), device, {"INFERENCE_PRECISION_HINT": "f32"})


def edges(model: ov.CompiledModel, picture: np.ndarray) -> np.ndarray:
    """Edge strengths of one (height, width) picture."""
    return model(picture[None, None].astype(np.float32))[0][0, 0]


def once(model: ov.CompiledModel) -> int:
    """A bright square on black: its outline is the only edge."""
    picture = np.zeros((64, 64), dtype=np.float32)
    picture[16:48, 16:48] = 255
    strength = edges(model, picture)
    outline = int((strength > 0).sum())
    print(json.dumps({"outline_pixels": outline, "strongest": float(strength.max())}))
    return 0 if outline == 34 * 34 - 30 * 30 and strength[16:46, 16:46].max() == 0 else 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Find edges on an Intel GPU.")
    parser.add_argument("--once", action="store_true", help="one known batch and exit")
    parser.add_argument("--device", default="GPU", help="OpenVINO device [default: GPU]")
    options = parser.parse_args()
    model = compile_on(options.device)
    if options.once:
        return once(model)
    for line in sys.stdin:
        frame = json.loads(line)
        strength = edges(model, np.asarray(frame["pixels"], dtype=np.float32))
        rows, columns = np.nonzero(strength > 0.25 * max(float(strength.max()), 1.0))
        print(json.dumps({"id": frame["id"], "edges": list(zip(rows.tolist(), columns.tolist(), strict=True))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
