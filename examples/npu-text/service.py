"""Ranks texts by likeness to a query, on an Ascend NPU.

    python service.py              serve POST /rank {"query": "…", "texts": ["…", …]}
    python service.py --once       rank one known batch; exit 0 only when the answer is right

A text becomes counts of its character trigrams, hashed into buckets; one matrix product projects the counts to a short
vector. Random projections keep angles (Johnson and Lindenstrauss), so no trained weights are needed.
There is no fall-back: without an NPU the program stops and says so.
"""

import argparse
import json
import sys
import zlib
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch

BUCKETS = 4096
WIDTH = 256
MAX_BODY = 1 << 20


def counts(texts: list[str]) -> torch.Tensor:
    """Float32 (len(texts), BUCKETS): how often each hashed trigram occurs."""
    table = torch.zeros(len(texts), BUCKETS)
    for row, text in enumerate(texts):
        padded = f"  {text.casefold()} "
        trigrams = Counter(padded[i : i + 3] for i in range(len(padded) - 2))
        for trigram, count in trigrams.items():
            table[row, zlib.crc32(trigram.encode()) % BUCKETS] += count
    return table


class Ranker:
    """The projection, held on one device."""

    def __init__(self, device: torch.device) -> None:
        seeded = torch.Generator().manual_seed(20)
        self._projection = (torch.randn(BUCKETS, WIDTH, generator=seeded) / WIDTH**0.5).to(device)
        self._device = device

    @torch.inference_mode()
    def rank(self, query: str, texts: list[str]) -> list[tuple[float, str]]:
        """Likeness (cosine, -1..1) and text, most alike first."""
        vectors = counts([query, *texts]).to(self._device) @ self._projection
        vectors = torch.nn.functional.normalize(vectors, dim=1)
        likeness = (vectors[1:] @ vectors[0]).cpu().tolist()
        return sorted(((round(value, 4), text) for value, text in zip(likeness, texts, strict=True)), reverse=True)


def npu() -> torch.device:
    """The first NPU; exits when there is none."""
    import torch_npu  # noqa: F401  registers the device with torch

    if not torch.npu.is_available():
        sys.exit("no Ascend NPU here: torch.npu.is_available() is false (are driver and device files mounted?)")
    return torch.device("npu:0")


def once(ranker: Ranker) -> int:
    """One batch whose answer is known."""
    texts = ["a banana split", "colour of the sky", "the sky's color", "quarterly report"]
    ranked = ranker.rank("what colour is the sky", texts)
    print(json.dumps({"ranked": ranked}))
    return 0 if [text for _, text in ranked[:2]] == ["colour of the sky", "the sky's color"] else 1


def handler(ranker: Ranker) -> type[BaseHTTPRequestHandler]:
    """The request handler over one ranker."""

    class Handler(BaseHTTPRequestHandler):
        """POST /rank."""

        def do_POST(self) -> None:
            """Rank one batch."""
            length = int(self.headers.get("Content-Length") or 0)
            if self.path != "/rank" or length > MAX_BODY:
                self.send_error(404 if self.path != "/rank" else 413)
                return
            try:
                request = json.loads(self.rfile.read(length))
                query, texts = str(request["query"]), [str(text) for text in request["texts"]]
            except (ValueError, KeyError, TypeError):
                self.send_error(400, 'expected {"query": "...", "texts": ["...", ...]}')
                return
            body = json.dumps({"ranked": ranker.rank(query, texts)}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Rank texts by likeness on an Ascend NPU.")
    parser.add_argument("--once", action="store_true", help="rank one known batch and exit")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    ranker = Ranker(npu())
    if options.once:
        return once(ranker)
    with HTTPServer(("", options.port), handler(ranker)) as server:
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
