"""Finds the nearest stored vectors to a query, on a TPU.

    python service.py vectors.npy < queries.jsonl      one line of JSON for each query vector
    python service.py --once                           one known batch; exit 0 only when the answer is right

The search is exact: one matrix product and one top-k, compiled once for each batch shape.
There is no fall-back: without a TPU the program stops and says so.
"""

import argparse
import json
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@partial(jax.jit, static_argnames="count")
def nearest(store: jax.Array, queries: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Squared distances and indices (both (queries, count)) of the nearest rows of `store`, nearest first."""
    products = jnp.matmul(queries, store.T, precision=jax.lax.Precision.HIGHEST)
    distances = (queries**2).sum(1)[:, None] - 2 * products + (store**2).sum(1)[None, :]
    values, indices = jax.lax.top_k(-distances, count)
    return jnp.maximum(-values, 0), indices


def require_tpu() -> str:
    """Kind of the first TPU; exits when there is none."""
    try:
        return jax.devices("tpu")[0].device_kind
    except RuntimeError as error:
        sys.exit(f"no TPU here: {error}")


def once(device: str) -> int:
    """Queries that are stored vectors plus a little noise: the nearest must be the original."""
    random = np.random.default_rng(11)
    store = random.standard_normal((4096, 128)).astype(np.float32)
    wanted = random.integers(0, len(store), 32)
    queries = store[wanted] + 0.01 * random.standard_normal((32, 128)).astype(np.float32)
    _, indices = nearest(jnp.asarray(store), jnp.asarray(queries), 3)
    right = int((np.asarray(indices)[:, 0] == wanted).sum())
    print(json.dumps({"device": device, "queries": len(wanted), "right": right}))
    return 0 if right == len(wanted) else 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Exact nearest neighbours on a TPU.")
    parser.add_argument("vectors", nargs="?", help="float32 (rows, width) in NumPy's .npy format")
    parser.add_argument("--once", action="store_true", help="one known batch and exit")
    options = parser.parse_args()
    device = require_tpu()
    if options.once:
        return once(device)
    if options.vectors is None:
        parser.error("give the file of stored vectors")
    store = jnp.asarray(np.load(options.vectors, allow_pickle=False), dtype=jnp.float32)
    for line in sys.stdin:
        query = jnp.asarray(json.loads(line), dtype=jnp.float32)[None, :]
        distances, indices = nearest(store, query, min(5, len(store)))
        print(json.dumps({"rows": indices[0].tolist(), "squared": distances[0].tolist()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
