"""`brain-node models`: the catalog against this machine: what fits where, with what context, and why not."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from brain_node.agent.request import request_of
from brain_node.cli.errors import fail_with
from brain_node.cli.gpus import read_machine
from brain_node.cli.options import AsJson, DataDir
from brain_node.cli.status import print_json
from brain_node.cli.table import print_table
from brain_node.contract.catalog import CatalogError, Model, load_catalog
from brain_node.engine.checkpoint import with_checkpoints
from brain_node.gpu.machine import machine_of
from brain_node.gpu.view import problem_json
from brain_node.plan.machine import Machine
from brain_node.plan.planner import plan, survey
from brain_node.plan.records import AUTO, Placement, Refusal
from brain_node.plan.sizes import gib
from brain_node.plan.view import plan_json, survey_json
from brain_node.settings import SettingsError, resolve

CatalogFile = Annotated[
    Path | None,
    typer.Option(
        "--catalog", metavar="FILE", help="Use this catalog instead of the shipped one. (env: BRAIN_NODE_CATALOG)"
    ),
]


def models(data_dir: DataDir = None, catalog: CatalogFile = None, as_json: AsJson = False) -> None:
    """Show which models of the catalog fit on this machine. It tells with what context, or why not."""
    try:
        settings = resolve({"catalog": catalog}, os.environ, data_dir)
        allowed = with_checkpoints(load_catalog(settings.catalog))
        request = replace(request_of(settings), models=(AUTO,))
    except (SettingsError, CatalogError) as error:
        fail_with(error)
    reading = read_machine()
    machine = machine_of(reading.inventory)
    answers = survey(allowed, machine, request)
    chosen = plan(allowed, machine, request)
    if as_json:
        print_json(
            {
                "models": survey_json(allowed, machine, answers),
                "auto": plan_json(chosen),
                "machine": {
                    "gpus": len(machine.cards),
                    "vram_mib": machine.vram_mib,
                    "ram_available_bytes": machine.ram_available_bytes,
                    "cpu_count": machine.cpu_count,
                },
                "problems": [problem_json(problem) for problem in reading.problems],
            }
        )
        return
    for problem in reading.problems:
        sys.stderr.write(f"[{problem.code}] {problem.message}. Next: {problem.next_step}\n")
    typer.echo(_heading(machine))
    print_table(
        ["model", "on a card", "licence", "here"],
        [
            [model.id, _needs(model), _licence(model), _here(answer)]
            for model, answer in zip(allowed, answers, strict=True)
        ],
    )
    names = ", ".join(dict.fromkeys(placement.model.id for placement in chosen.placements))
    typer.echo(f"--model auto would serve {names or 'nothing: ' + chosen.refusals[0].message}")


def _heading(machine: Machine) -> str:
    if not machine.cards:
        return (
            f"No NVIDIA card can be used, so models are shown against the CPU"
            f" ({machine.cpu_count} cores, {gib(machine.ram_available_bytes)} of RAM free)."
        )
    return "Against " + ", ".join(f"{card.label} with {gib(card.free_bytes)} free" for card in machine.cards) + ":"


def _needs(model: Model) -> str:
    return "nothing" if model.mock else gib(model.min_vram_bytes)


def _licence(model: Model) -> str:
    return model.license + (" (gated)" if model.gated else "")


def _here(answer: Placement | Refusal) -> str:
    if isinstance(answer, Refusal):
        return f"no: {answer.message.removeprefix(answer.model_id + ' ')}"
    where = "CPU" if answer.device == "cpu" else "GPU " + "+".join(str(index) for index in answer.gpu_indices)
    return f"yes: {where}, {answer.max_model_len} tokens, {answer.slots} at a time"
