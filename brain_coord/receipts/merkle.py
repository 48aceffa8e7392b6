"""One signature for all links of a commit: a hash tree, and the path from each leaf to its root."""

import hashlib

_INNER = b"\x01"
STEP_BYTES = 33
"""A step of a path: one byte for the side of the sibling (`L` or `R`), then its hash."""


def parent_of(left: bytes, right: bytes) -> bytes:
    """The hash over two siblings; the leading byte keeps it apart from a link's own hash."""
    return hashlib.sha256(_INNER + left + right).digest()


def grow(leaves: list[bytes]) -> tuple[bytes, list[bytes]]:
    """The root over at least one leaf, and for each leaf the steps that lead to it, joined."""
    paths = [b""] * len(leaves)
    level = [(leaf, [index]) for index, leaf in enumerate(leaves)]
    while len(level) > 1:
        above = []
        for (left, under_left), (right, under_right) in zip(level[::2], level[1::2], strict=False):
            for index in under_left:
                paths[index] += b"R" + right
            for index in under_right:
                paths[index] += b"L" + left
            above.append((parent_of(left, right), under_left + under_right))
        if len(level) % 2:
            above.append(level[-1])
        level = above
    return level[0][0], paths


def steps_of(path: bytes) -> list[bytes]:
    """The steps of a stored path."""
    return [path[start : start + STEP_BYTES] for start in range(0, len(path), STEP_BYTES)]


def climb(leaf: bytes, steps: list[bytes]) -> bytes:
    """The root that a path leads to.

    Raises:
        ValueError: a step is malformed.
    """
    node = leaf
    for step in steps:
        side, sibling = step[:1], step[1:]
        if len(step) != STEP_BYTES or side not in (b"L", b"R"):
            raise ValueError("malformed step")
        node = parent_of(sibling, node) if side == b"L" else parent_of(node, sibling)
    return node
