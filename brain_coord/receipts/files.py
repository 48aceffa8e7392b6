"""Reading receipts from a file: JSON lines, one JSON object, or a JSON list."""

from collections.abc import Iterator
from typing import Any, BinaryIO

from brain_coord.receipts.verify import BadReceipt, parse


def items_of(file: BinaryIO) -> Iterator[tuple[int, Any]]:
    """The receipts in a file, parsed or as text that is yet to be, each with the line or position it stands at.

    Lines are handed on as they are read, so that an export of any length can be checked.
    """
    first = file.readline()
    while first and not first.strip():
        first = file.readline()
    if not first:
        return
    if not _stands_alone(first):
        yield from _whole(first + file.read())
        return
    yield 1, first
    for number, line in enumerate(file, 2):
        if line.strip():
            yield number, line


def _stands_alone(line: bytes) -> bool:
    try:
        return isinstance(parse(line), dict)
    except BadReceipt:
        return False


def _whole(text: bytes) -> Iterator[tuple[int, Any]]:
    try:
        document = parse(text)
    except BadReceipt:
        # Not one document: lines, the first of them damaged. Left as text, so that the finding names the line.
        yield from ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
        return
    yield from enumerate(document if isinstance(document, list) else [document], 1)
