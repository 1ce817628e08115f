"""The model: from 8x8 grey images to the digits they show."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

HERE = Path(__file__).parent
PIXELS = 64
WHITE = 16


class BadImage(ValueError):
    """The request's image is not 64 numbers from 0 to 16."""


@dataclass(frozen=True)
class Guess:
    """What one image shows, and how sure the model is (0..1)."""

    digit: int
    probability: float


class Model:
    """One loaded network; `read` may be called from several threads."""

    def __init__(self, path: Path = HERE / "model.onnx") -> None:
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def read(self, images: np.ndarray) -> list[Guess]:
        """The guesses for float32 images of shape (batch, 64)."""
        (probabilities,) = self._session.run(["probabilities"], {"images": images})
        digits = probabilities.argmax(axis=1)
        return [
            Guess(int(digit), round(float(row[digit]), 4)) for digit, row in zip(digits, probabilities, strict=True)
        ]


def parse_images(value: object) -> np.ndarray:
    """A batch from a request's JSON: a list of images, each a list of 64 numbers from 0 (black) to 16 (white)."""
    try:
        images = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise BadImage(str(error)) from error
    if images.ndim != 2 or images.shape[1] != PIXELS or len(images) == 0:
        raise BadImage(f"expected a list of images of {PIXELS} numbers, got shape {images.shape}")
    if not np.isfinite(images).all() or images.min() < 0 or images.max() > WHITE:
        raise BadImage(f"pixels must be from 0 to {WHITE}")
    return images


def known_answers() -> tuple[np.ndarray, list[int]]:
    """Images with the digits they are known to show."""
    samples = json.loads((HERE / "samples.json").read_text())
    return parse_images([sample["image"] for sample in samples]), [sample["digit"] for sample in samples]
