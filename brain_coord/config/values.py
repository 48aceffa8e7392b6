"""Kinds of values in the configuration file, and what all of its tables are."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MIB: Final = 1024 * 1024
KIB: Final = 1024

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Price = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def _texts(value: Any) -> Any:
    """A list, or from the environment one text with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class Table(BaseModel):
    """A table of the file. Keys that it does not know are faults."""

    model_config = ConfigDict(extra="forbid", frozen=True)
