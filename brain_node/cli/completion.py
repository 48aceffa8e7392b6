"""What the shell may offer while a model's name is being typed."""

import os


def complete_model(incomplete: str) -> list[str]:
    """Catalog ids that begin like this, or hold it; an unreadable catalog offers nothing."""
    from pathlib import Path

    from brain_node.contract.catalog import CatalogError, load_catalog

    named = os.environ.get("BRAIN_NODE_CATALOG", "")
    try:
        names = ["auto", *(model.id for model in load_catalog(Path(named) if named else None))]
    except CatalogError:
        return []
    return [name for name in names if name.startswith(incomplete)] or [name for name in names if incomplete in name]


def complete_log(incomplete: str) -> list[str]:
    """Models whose engines have a log in the data folder of the environment, or the default one."""
    from brain_node.settings import data_dir_of

    folder = data_dir_of(None, os.environ)[0] / "logs"
    names = [path.stem.replace("--", "/", 1) for path in sorted(folder.glob("*.log")) if path.stem != "agent"]
    return [name for name in names if incomplete in name]
