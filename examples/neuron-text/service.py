"""Scores the tone of short texts, on AWS Trainium or Inferentia.

    python service.py < texts.jsonl      one JSON answer per line of {"id": …, "text": "…"}
    python service.py --once             one known batch; exit 0 only when the answer is right

A bag of hashed words times a small table of word tones: one matrix product, traced for the NeuronCore.
There is no fall-back: without a Neuron device the program stops and says so.
"""

import argparse
import json
import re
import sys
import zlib

import torch

BUCKETS = 2048
BATCH = 8
TONES = {"good": 1, "great": 2, "fast": 1, "love": 2, "works": 1, "bad": -1, "slow": -1, "broken": -2, "crash": -2}


def bucket(word: str) -> int:
    """The column of a word."""
    return zlib.crc32(word.encode()) % BUCKETS


def counts(texts: list[str]) -> torch.Tensor:
    """Float32 (BATCH, BUCKETS): word counts, empty rows after the last text."""
    table = torch.zeros(BATCH, BUCKETS)
    for row, text in enumerate(texts):
        for word in re.findall(r"[a-z]+", text.casefold()):
            table[row, bucket(word)] += 1
    return table


class Tone(torch.nn.Module):
    """Word counts to one score in -1..1."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.zeros(BUCKETS, 1)
        for word, tone in TONES.items():
            weights[bucket(word)] = tone
        self.weights = torch.nn.Parameter(weights, requires_grad=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(BATCH, BUCKETS) to (BATCH, 1)."""
        return torch.tanh(words @ self.weights)


def compiled() -> torch.nn.Module:
    """The network traced for the NeuronCore; exits when it cannot be."""
    try:
        import torch_neuronx
    except ImportError as error:
        sys.exit(f"torch-neuronx is not installed: {error}")
    return torch_neuronx.trace(Tone(), counts([]))


def scores(model: torch.nn.Module, texts: list[str]) -> list[float]:
    """One score for each of at most BATCH texts."""
    return [round(value, 4) for value in model(counts(texts))[: len(texts), 0].tolist()]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Score the tone of texts on Trainium or Inferentia.")
    parser.add_argument("--once", action="store_true", help="one known batch and exit")
    options = parser.parse_args()
    model = compiled()
    if options.once:
        found = scores(model, ["great, it works", "slow and broken", "the train leaves at noon"])
        print(json.dumps({"scores": found}))
        return 0 if found[0] > 0.9 and found[1] < -0.9 and found[2] == 0 else 1
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"id": request["id"], "score": scores(model, [request["text"]])[0]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
