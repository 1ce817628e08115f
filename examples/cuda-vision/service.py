"""Tells blurred photographs from sharp ones, on an NVIDIA GPU.

    python service.py              serve POST /sharpness with an 8-bit binary PGM image as the body
    python service.py --once       judge one known batch; exit 0 only when the answer is right

The measure is the variance of the Laplacian (Pech-Pacheco et al., 2000): edges are lost first when a picture blurs.
There is no fall-back: without a GPU the program stops and says so.
"""

import argparse
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import torch

MAX_BODY = 64 << 20
PGM = re.compile(rb"P5\s+(?:#[^\n]*\s+)*(\d+)\s+(\d+)\s+255\s")
LAPLACIAN = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]]).view(1, 1, 3, 3)


def read_pgm(data: bytes) -> torch.Tensor:
    """Float32 (height, width) in 0..1; ValueError when the bytes are not an 8-bit binary PGM (netpbm, pgm.5)."""
    match = PGM.match(data)
    if match is None:
        raise ValueError("not an 8-bit binary PGM (P5, maximum 255)")
    width, height = int(match[1]), int(match[2])
    pixels = data[match.end() :]
    if len(pixels) != width * height or not pixels:
        raise ValueError(f"{width}x{height} image with {len(pixels)} pixels")
    return torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(height, width) / 255


@torch.inference_mode()
def sharpness(images: torch.Tensor) -> torch.Tensor:
    """Variance of the Laplacian of each image of a (batch, height, width) tensor, on the tensor's device."""
    edges = torch.nn.functional.conv2d(images.unsqueeze(1), LAPLACIAN.to(images.device))
    return edges.flatten(1).var(dim=1)


def gpu() -> torch.device:
    """The first GPU; exits when there is none."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        sys.exit(f"no NVIDIA GPU here (torch built for CUDA {torch.version.cuda})")
    return torch.device("cuda:0")


def once(device: torch.device) -> int:
    """A chessboard, and the same chessboard out of focus."""
    square = torch.arange(256) // 16 % 2
    sharp = (square[:, None] ^ square[None, :]).float()
    kernel = torch.full((1, 1, 9, 9), 1 / 81)
    blurred = torch.nn.functional.conv2d(sharp.view(1, 1, 256, 256), kernel, padding=4)[0, 0]
    values = sharpness(torch.stack([sharp, blurred]).to(device)).cpu().tolist()
    print(json.dumps({"device": torch.cuda.get_device_name(device), "sharp": values[0], "blurred": values[1]}))
    return 0 if values[0] > 10 * values[1] > 0 else 1


def handler(device: torch.device) -> type[BaseHTTPRequestHandler]:
    """The request handler over one device."""

    class Handler(BaseHTTPRequestHandler):
        """POST /sharpness."""

        def do_POST(self) -> None:
            """Judge one image."""
            length = int(self.headers.get("Content-Length") or 0)
            if self.path != "/sharpness" or length > MAX_BODY:
                self.send_error(404 if self.path != "/sharpness" else 413)
                return
            try:
                image = read_pgm(self.rfile.read(length))
            except ValueError as error:
                self.send_error(400, str(error))
                return
            value = sharpness(image.unsqueeze(0).to(device)).item()
            body = json.dumps({"sharpness": value}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Tell blurred photographs from sharp ones on an NVIDIA GPU.")
    parser.add_argument("--once", action="store_true", help="judge one known batch and exit")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    device = gpu()
    if options.once:
        return once(device)
    with HTTPServer(("", options.port), handler(device)) as server:
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
