"""Where a model's weights are on this machine, or how they get there."""

from collections.abc import Callable
from pathlib import Path

from brain_node.contract.catalog import Model
from brain_node.engine.causes import Cause, CauseKind
from brain_node.engine.supervisor import FetchError, FetchWeights
from brain_node.engine.view import DownloadProgress


def weights_of(model: Model) -> tuple[Path, FetchWeights | None]:
    """The folder of a model's weights, and how they are fetched when it is not a folder of the operator's own."""
    if model.local_folder is not None:
        return model.local_folder, None

    async def fetch(_: Callable[[DownloadProgress], None]) -> Path:
        message = f"{model.id} has to be fetched from a hub, which this version cannot do"
        raise FetchError(Cause(CauseKind.MISSING_MODEL, message, "name a catalog with local folders (--catalog)"))

    return Path(), fetch
