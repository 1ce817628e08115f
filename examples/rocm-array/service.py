"""Finds the strongest vibration frequencies of machines, on an AMD GPU.

    python service.py < windows.jsonl      one JSON answer per line of {"id": …, "rate": Hz, "samples": [numbers]}
    python service.py --once               one known batch; exit 0 only when the answer is right

There is no fall-back: without a GPU the program stops and says so.
"""

import argparse
import json
import sys

import cupy


def peaks(samples: cupy.ndarray, rate: float, count: int = 3) -> list[list[float]]:
    """For each row of (batch, length) samples its `count` strongest frequencies in Hz, strongest first."""
    length = samples.shape[1]
    centred = (samples - samples.mean(axis=1, keepdims=True)) * cupy.hanning(length)
    power = cupy.abs(cupy.fft.rfft(centred, axis=1)) ** 2
    local = (power[:, 1:-1] > power[:, :-2]) & (power[:, 1:-1] >= power[:, 2:])
    strength = cupy.where(local, power[:, 1:-1], 0)
    strongest = cupy.argsort(-strength, axis=1)[:, :count] + 1
    return (strongest * (rate / length)).tolist()


def require_gpu() -> str:
    """Name of the first AMD GPU; exits when there is none."""
    if not cupy.cuda.runtime.is_hip:
        sys.exit("this cupy is not a ROCm build")
    try:
        properties = cupy.cuda.runtime.getDeviceProperties(0)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        sys.exit(f"no AMD GPU here: {error} (are /dev/kfd and /dev/dri passed in?)")
    return properties["name"].decode()


def once(device: str) -> int:
    """Three tones of known frequency and strength."""
    rate, seconds = 8000, 2
    time = cupy.arange(rate * seconds) / rate
    tones = ((50.0, 1.0), (120.0, 0.5), (1234.5, 0.25))
    signal = sum(strength * cupy.sin(2 * cupy.pi * hertz * time) for hertz, strength in tones)
    found = peaks(signal[None, :], rate)[0]
    print(json.dumps({"device": device, "hertz": found}))
    return 0 if found == [hertz for hertz, _ in tones] else 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Find vibration frequencies on an AMD GPU.")
    parser.add_argument("--once", action="store_true", help="one known batch and exit")
    options = parser.parse_args()
    device = require_gpu()
    if options.once:
        return once(device)
    for line in sys.stdin:
        request = json.loads(line)
        samples = cupy.asarray(request["samples"], dtype=cupy.float64)[None, :]
        print(json.dumps({"id": request["id"], "hertz": peaks(samples, request["rate"])[0]}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
