"""Machines and catalogs for the planner's tests."""

from pathlib import Path

import pytest

from brain_node.contract.catalog import Catalog, load_catalog
from brain_node.plan.machine import Card

MIB = 1 << 20
GIB = 1 << 30

SHIPPED = load_catalog()


def card(index: int, total_mib: int, free_mib: float | None = None, *, name: str | None = None, **fields) -> Card:
    """A card; free all over unless told otherwise."""
    return Card(
        uuid=fields.pop("uuid", f"GPU-{index:04d}"),
        name=name or f"Card of {total_mib} MiB",
        index=index,
        total_bytes=total_mib * MIB,
        free_bytes=int((total_mib if free_mib is None else free_mib) * MIB),
        compute_capability=fields.pop("compute_capability", (8, 9)),
        **fields,
    )


@pytest.fixture
def catalog_of(tmp_path: Path):
    """A catalog with entries that hold the documented keys, and those given."""

    def load(**models: dict) -> Catalog:
        text = ""
        for name, keys in models.items():
            entry = {
                "id": f"acme/{name.replace('_', '-')}",
                "name": name,
                "repo": "acme/Model",
                "revision": "main",
                "params_b": 1.0,
                "context": 4096,
                "min_vram_mib": 2000,
                "license": "mit",
                "gated": False,
                "device": "cuda",
                "args": [],
                **keys,
            }
            rows = [f"{key} = {_toml(value)}" for key, value in entry.items()]
            text += "[[model]]\n" + "\n".join(rows) + "\n"
        path = tmp_path / "catalog.toml"
        path.write_text(text)
        return load_catalog(path)

    return load


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).replace("'", '"') if isinstance(value, str | list) else str(value)
