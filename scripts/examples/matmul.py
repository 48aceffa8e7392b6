"""Multiply two matrices over the browser tabs of a coordinator, and compare with NumPy.

    BRAIN_API_KEY=… python scripts/examples/matmul.py http://127.0.0.1:8470 [A.npy B.npy]

The matrices hold unsigned 32-bit numbers; products are taken mod 2^32, as the tabs and NumPy do. Without files two are
made here: a random graph of 600 nodes, whose square counts the ways of two steps between every two nodes.
"""

import base64
import json
import os
import sys
import urllib.request
from typing import Any

import numpy as np
from numpy.typing import NDArray

U32 = NDArray[np.uint32]


def ask(url: str, key: str, body: dict[str, Any] | None = None) -> bytes:
    """One request with the key; the answer's bytes."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=900) as reply:
        return bytes(reply.read())


def multiply(base: str, key: str, a: U32, b: U32) -> tuple[U32, dict[str, Any]]:
    """The product mod 2^32 as the tabs made it, and what the coordinator says of the job."""
    text = [base64.b64encode(np.ascontiguousarray(each, dtype="<u4").tobytes()).decode() for each in (a, b)]
    sizes = {"rows": a.shape[0], "inner": a.shape[1], "columns": b.shape[1]}
    job = json.loads(ask(f"{base}/v1/compute/matmul", key, {**sizes, "a": text[0], "b": text[1]}))
    raw = ask(f"{base}/v1/compute/jobs/{job['id']}/result", key)
    return np.frombuffer(raw, "<u4").reshape(a.shape[0], b.shape[1]), job


def matrices(files: list[str]) -> tuple[U32, U32]:
    """The two in the files, or a graph's adjacency twice."""
    if len(files) == 2:
        a, b = (np.load(name).astype(np.uint32) for name in files)
        return a, b
    graph = (np.random.default_rng(1).random((600, 600)) < 0.02).astype(np.uint32)
    return graph, graph


def main() -> None:
    """Multiply, compare, tell."""
    base, files = sys.argv[1].rstrip("/"), sys.argv[2:]
    a, b = matrices(files)
    product, job = multiply(base, os.environ["BRAIN_API_KEY"], a, b)
    exact = bool(np.array_equal(product, a @ b))
    print(f"{job['units']} units on {len(job['tabs'])} tabs in {job['elapsed_ms'] / 1000:.2f} s, every one checked:")
    print(f"  tabs     {', '.join(job['tabs'])}")
    print(f"  sha256   {job['result_sha256']}")
    print(f"  receipt  {job['receipt']}")
    print(f"  the same as NumPy's product: {exact}")
    sys.exit(0 if exact else 1)


if __name__ == "__main__":
    main()
