"""What the shapes share."""

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """One JSON object: every member is always there, and there are no others."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Problem(Shape):
    """Something a person should know, with what to do about it."""

    code: str
    message: str
    next_step: str
