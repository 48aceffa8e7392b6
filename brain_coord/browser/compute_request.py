"""What a client asks of `POST /v1/compute/matmul`: sizes with a seed, or two matrices."""

import base64
import binascii
from typing import Annotated, Any, Final, Literal

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from brain_coord.browser.checker import Operands, Seeded, Uploaded
from brain_coord.browser.u32 import U32
from brain_coord.browser.unit import Product
from brain_coord.gateway.errors import fault
from brain_coord.routing.vocabulary import Mode, Privacy

MOST: Final = 8192
MOST_RESULT: Final = 16 * 1024 * 1024
MOST_OPERATIONS: Final = 1 << 40

Size = Annotated[int, Field(ge=1, le=MOST)]


class MatmulRequest(BaseModel):
    """The body. Unknown members are refused, so that a typing mistake is not silently another job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: Size
    inner: Size
    columns: Size
    seed: Annotated[int, Field(ge=0, lt=1 << 64)] | None = None
    a: str | None = None
    """`rows · inner` unsigned 32-bit numbers, row by row, little endian, in base64."""
    b: str | None = None
    """`inner · columns` of them."""
    wait: bool = True
    redundancy: Annotated[int, Field(ge=1, le=3)] = 1
    result: Literal["base64", "none"] = "none"
    """Whether a waiting answer carries the numbers; `/result` has them in any case."""
    mode: Mode = Mode.AUTO
    privacy: Privacy | None = None


def read_request(raw: bytes) -> MatmulRequest:
    """The request in a body.

    Raises:
        ApiError: 400, naming the field at fault.
    """
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise fault("invalid_json", f"the body is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise fault("invalid_json", "the body must be a JSON object")
    try:
        return MatmulRequest.model_validate(_upper(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise fault("invalid_field", f"`{name}`: {first['msg']}", param=name or None) from None


def _upper(data: dict[str, Any]) -> dict[str, Any]:
    """Modes and privacy levels may be written small, as everywhere."""
    small = {name: data[name].upper() for name in ("mode", "privacy") if isinstance(data.get(name), str)}
    return {**data, **small}


def product_of(request: MatmulRequest) -> Product:
    """The operands in a request.

    Raises:
        ApiError: 400.
    """
    rows, inner, columns = request.rows, request.inner, request.columns
    if rows * columns > MOST_RESULT:
        raise fault("invalid_field", f"a result has at most {MOST_RESULT} numbers", param="rows")
    if 2 * rows * inner * columns > MOST_OPERATIONS:
        raise fault("invalid_field", f"a product takes at most {MOST_OPERATIONS} operations", param="inner")
    given = (request.seed is not None, request.a is not None, request.b is not None)
    operands: Operands
    if given == (True, False, False):
        assert request.seed is not None
        operands = Seeded(request.seed, rows, inner, columns)
    elif given == (False, True, True):
        operands = Uploaded(_matrix(request.a, "a", rows, inner), _matrix(request.b, "b", inner, columns))
    else:
        raise fault("missing_field", "give either `seed`, or both `a` and `b`", param="seed")
    return Product(operands, rows, inner, columns)


def _matrix(text: str | None, name: str, rows: int, columns: int) -> U32:
    try:
        data = base64.b64decode(text or "", validate=True)
    except binascii.Error:
        raise fault("invalid_field", f"`{name}` is not base64", param=name) from None
    if len(data) != 4 * rows * columns:
        sentence = f"`{name}` holds {len(data)} bytes, but {rows} x {columns} numbers are {4 * rows * columns}"
        raise fault("invalid_field", sentence, param=name)
    return np.frombuffer(data, dtype="<u4").reshape(rows, columns)
