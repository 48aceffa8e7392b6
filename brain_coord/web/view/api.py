"""The API's description as rows of a page, from the OpenAPI document that the coordinator makes of itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_METHODS: Final = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation."""

    name: str
    where: str
    required: bool
    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One route and method."""

    method: str
    path: str
    text: str
    parameters: tuple[Parameter, ...]
    body: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that belong together."""

    name: str
    operations: tuple[Operation, ...]


def groups_of(document: Mapping[str, Any]) -> tuple[Group, ...]:
    """The operations by their first tag, in the order in which they were declared."""
    groups: dict[str, list[Operation]] = {}
    for path, methods in document.get("paths", {}).items():
        for method in _METHODS:
            if (operation := methods.get(method)) is not None:
                tag = next(iter(operation.get("tags", ())), "other")
                groups.setdefault(tag, []).append(_operation(method.upper(), path, operation))
    return tuple(Group(name, tuple(found)) for name, found in groups.items())


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Operation:
    parameters = tuple(
        Parameter(
            name=each["name"],
            where=each["in"],
            required=bool(each.get("required")),
            text=each.get("description") or each.get("schema", {}).get("description") or _type(each.get("schema", {})),
        )
        for each in operation.get("parameters", ())
    )
    text = operation.get("description") or operation.get("summary") or ""
    return Operation(method, path, " ".join(text.split()), parameters, "requestBody" in operation)


def _type(schema: Mapping[str, Any]) -> str:
    kinds = [each.get("type") for each in schema.get("anyOf", [schema])]
    return " or ".join(str(kind) for kind in kinds if kind and kind != "null")
