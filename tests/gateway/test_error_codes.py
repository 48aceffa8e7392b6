"""The table of error codes is the whole truth: nothing else is ever said, nothing in it is dead, nothing is left unexplained."""

import ast
from pathlib import Path

import pytest

from brain_coord.gateway.errors import CODES, fault

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TESTS = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def calls() -> list[tuple[Path, str, ast.Call]]:
    """Every place in the coordinator that makes an error for a client."""
    return [
        (path, node.func.id, node)
        for path in (ROOT / "brain_coord").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("fault", "ApiError")
    ]


def literal_code(name: str, call: ast.Call) -> str | None:
    """The code that a call names in so many words."""
    at = 0 if name == "fault" else 1
    given = next((word.value for word in call.keywords if word.arg == "code"), None)
    value = call.args[at] if len(call.args) > at else given
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None


def test_every_code_that_is_said_is_in_the_table():
    said = {(str(path), code) for path, name, call in calls() if (code := literal_code(name, call))}
    assert said
    assert {(path, code) for path, code in said if code not in CODES} == set()


@pytest.mark.parametrize("code", CODES)
def test_every_code_in_the_table_is_said_somewhere(code):
    sources = (path for path in (ROOT / "brain_coord").rglob("*.py") if path.name != "errors.py")
    assert any(f'"{code}"' in path.read_text(encoding="utf-8") for path in sources)


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_described_to_people_or_shown_by_a_test(code):
    assert f"| `{code}` | {CODES[code][0]} |" in README or f'"{code}"' in TESTS


@pytest.mark.parametrize("code", CODES)
def test_a_code_brings_its_status_and_a_kind_that_clients_know(code):
    error = fault(code, "what happened")
    assert error.status == CODES[code][0]
    assert error.type in ("invalid_request_error", "authentication_error", "rate_limit_error", "server_error")
    assert CODES[code][1].endswith(".")
