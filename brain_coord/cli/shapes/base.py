"""What the shapes share."""

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """One JSON object: every member without a default is always there, and there are no others."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)
