"""The models for tabs that were written down, read again when their files change."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from brain_coord.browser.checkpoint import CheckpointError
from brain_coord.browser.models import BrowserModel, Piece, Stage, model_files, read_model
from brain_coord.browser.speech import Speech

log = structlog.get_logger("brain.browser")


@dataclass(slots=True)
class Shelf:
    """Models by id, with their tokenizers and the pieces of their weights."""

    data_dir: Path
    models: dict[str, BrowserModel] = field(default_factory=dict)
    speech: dict[str, Speech] = field(default_factory=dict)
    pieces: dict[str, tuple[Path, Piece]] = field(default_factory=dict)
    _seen: dict[Path, int] = field(default_factory=dict)

    async def look(self) -> None:
        """Take what changed."""
        found = {}
        for path in model_files(self.data_dir):
            with suppress(FileNotFoundError):  # it was removed just now
                found[path] = path.stat().st_mtime_ns
        if found == self._seen:
            return
        self._seen = found
        await asyncio.to_thread(self._read, list(found))

    def _read(self, paths: list[Path]) -> None:
        models: dict[str, BrowserModel] = {}
        speech: dict[str, Speech] = {}
        for path in paths:
            try:
                model = read_model(path)
                speech[model.model_id] = Speech(model.folder)
            except (CheckpointError, OSError, ValueError, KeyError, TypeError) as error:
                log.warning("browser model not offered", file=str(path), reason=str(error))
                continue
            models[model.model_id] = model
        self.speech = speech
        self.models = models
        self.pieces = {
            piece.sha256: (model.folder / piece.file, piece)
            for model in models.values()
            for stage in model.stages
            for _, pieces in stage.tensors
            for piece in pieces
        }

    def stages(self) -> Iterator[tuple[BrowserModel, Stage]]:
        """Every stage of every model, in order."""
        for _, model in sorted(self.models.items()):
            for stage in model.stages:
                yield model, stage
