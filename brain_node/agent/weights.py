"""Where a model's weights are on this machine, or how they get there."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from brain_node.contract.catalog import Model
from brain_node.engine.environments import EngineEnv
from brain_node.engine.fetch import FetchWeights
from brain_node.engine.weights import Hub, HubModel, fetch_weights, fetched_weights

Weights = Callable[[Model, EngineEnv], tuple[Path, FetchWeights | None]]
"""The folder of a model's weights, and how they are fetched when they are not there yet."""


def weights_from_hub(data_dir: Path, token: str | None) -> Weights:
    """Weights from the operator's own folders where the catalog names them, else from the hub."""

    def weights(model: Model, env: EngineEnv) -> tuple[Path, FetchWeights | None]:
        if model.local_folder is not None:
            return model.local_folder, None
        hub, wanted = Hub(env.python, data_dir, token), HubModel(model.repo, model.revision)
        if (found := fetched_weights(hub, wanted)) is not None:
            return found, None
        return Path(), partial(fetch_weights, hub, wanted)

    return weights
