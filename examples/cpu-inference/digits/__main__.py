"""Serve the model, or with `--once` read one batch of known images and exit 0 only when every answer is right."""

import argparse
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from digits.model import BadImage, Model, known_answers, parse_images

MAX_BODY = 4 << 20


def once(model: Model) -> int:
    """One batch of known images."""
    images, expected = known_answers()
    start = time.perf_counter()
    guesses = model.read(images)
    seconds = time.perf_counter() - start
    wrong = [i for i, (guess, digit) in enumerate(zip(guesses, expected, strict=True)) if guess.digit != digit]
    answer = {
        "images": len(images),
        "digits": "".join(str(guess.digit) for guess in guesses),
        "wrong": wrong,
        "least_sure": min(guess.probability for guess in guesses),
        "milliseconds": round(1000 * seconds, 2),
    }
    print(json.dumps(answer))
    return 1 if wrong else 0


def handler(model: Model) -> type[BaseHTTPRequestHandler]:
    """The request handler over one model."""

    class Handler(BaseHTTPRequestHandler):
        """GET /healthz; POST /read with {"images": [[64 numbers], …]}."""

        def do_GET(self) -> None:
            """Healthy as soon as the model is loaded."""
            if self.path == "/healthz":
                self._answer(200, {"status": "ok"})
            else:
                self._answer(404, {"error": f"no such path: {self.path}"})

        def do_POST(self) -> None:
            """Read one batch."""
            if self.path != "/read":
                self._answer(404, {"error": f"no such path: {self.path}"})
                return
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MAX_BODY:
                self._answer(413, {"error": f"send a body of at most {MAX_BODY} bytes with its Content-Length"})
                return
            try:
                request = json.loads(self.rfile.read(int(length)))
                images = parse_images(request["images"])
            except (ValueError, KeyError, TypeError) as error:
                reason = str(error) if isinstance(error, BadImage) else 'expected {"images": [[64 numbers], …]}'
                self._answer(400, {"error": reason})
                return
            guesses = model.read(images)
            self._answer(200, {"guesses": [{"digit": g.digit, "probability": g.probability} for g in guesses]})

        def _answer(self, status: int, document: dict[str, object]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="digits", description=__doc__)
    parser.add_argument("--once", action="store_true", help="read one batch of known images and exit")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()
    model = Model()
    if options.once:
        return once(model)
    with ThreadingHTTPServer(("", options.port), handler(model)) as server:
        sys.stderr.write(f"listening on port {server.server_address[1]}\n")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
