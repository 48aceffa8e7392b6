"""What each side needs is what its extra installs: nothing optional is imported until it is used."""

import subprocess
import sys

import pytest

OPTIONAL = (
    "tokenizers",
    "opentelemetry.sdk",
    "opentelemetry.exporter",
    "psycopg",
    "redis",
    "huggingface_hub",
    "python_socks",
    "torch",
    "transformers",
    "playwright",
    "httpx",
)
COORDINATOR_ONLY = ("fastapi", "sqlalchemy", "alembic", "uvicorn", "jinja2", "numpy", "prometheus_client", "rfc8785")


def imports(program: str, absent: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Import a program as on a machine where some packages are not installed."""
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in absent)
    return subprocess.run(
        [sys.executable, "-c", f"import sys\n{blocked}import {program}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("program", ["brain_coord.coordinator", "brain_coord.server", "brain_coord.cli.serve"])
def test_the_coordinator_starts_with_its_own_extra_alone(program):
    done = imports(program, OPTIONAL)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", ["brain_node.cli", "brain_node.agent.agent", "brain_node.agent.vllm"])
def test_a_node_starts_with_the_base_install_alone(program):
    done = imports(program, (*OPTIONAL, *COORDINATOR_ONLY))
    assert done.returncode == 0, done.stderr
