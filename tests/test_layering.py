"""Import directions: an arrow may only point down."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Rooms from the bottom up; a room may import its own layer and those below it.
LAYERS = [
    {"brain_node.contract", "brain_node.exit_codes", "brain_node.model_name", "brain_node.plan", "brain_coord.routing"},
    {
        "brain_node.gpu",
        "brain_coord.fleet",
        "brain_coord.measure",
        "brain_coord.receipts",
        "brain_coord.store",
        "brain_coord.observe",
    },
    {
        "brain_node.link",
        "brain_node.engine",
        "brain_node.relay",
        "brain_node.local_api",
        "brain_coord.browser",
        "brain_coord.cluster",
        "brain_coord.classes",
        "brain_coord.gateway",
        "brain_coord.link",
        "brain_coord.web",
        "brain_coord.probes",
    },
    {
        "brain_node.agent",
        "brain_node.settings",
        "brain_node.cli",
        "brain_node.__main__",
        "brain_coord.app",
        "brain_coord.admin",
        "brain_coord.coordinator",
        "brain_coord.loops",
        "brain_coord.memory",
        "brain_coord.node_desk",
        "brain_coord.tab_desk",
        "brain_coord.server",
        "brain_coord.config",
        "brain_coord.settings",
        "brain_coord.cli",
        "brain_coord.__main__",
    },
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
PURE = ("brain_coord/routing", "brain_node/plan")
IMPURE = {"time", "random", "secrets", "socket", "asyncio", "subprocess", "threading", "os", "aiohttp", "sqlalchemy"}


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def modules() -> list[Path]:
    return sorted(p for package in ("brain_node", "brain_coord") for p in (ROOT / package).rglob("*.py"))


def faults_in(path: Path, module: str) -> list[str]:
    room, faults = room_of(module), []
    if module.count(".") == 0:
        return []
    if room not in LEVEL:
        faults.append(f"{module}: no layer is set for {room}")
    for target in sorted(imports_of(path)):
        package, other = target.split(".")[0], room_of(target)
        if package not in ("brain_node", "brain_coord") or other.endswith("__version__"):
            continue
        if module.startswith("brain_node.") and package == "brain_coord":
            faults.append(f"{module} imports {target}: a node knows nothing of the coordinator")
        elif module.startswith("brain_coord.") and package == "brain_node" and other != "brain_node.contract":
            faults.append(f"{module} imports {target}: of the node only the contract is shared")
        elif room == "brain_node.contract" and other != room:
            faults.append(f"{module} imports {target}: the contract stands alone")
        elif LEVEL.get(other, 0) > LEVEL.get(room, 99):
            faults.append(f"{module} imports {target}: that is a layer above")
    return faults


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_every_arrow_points_down(path):
    assert faults_in(path, name_of(path)) == []


@pytest.mark.parametrize("path", [p for p in modules() if str(p.relative_to(ROOT)).startswith(PURE)], ids=name_of)
def test_the_pure_core_touches_nothing_outside(path):
    assert {name.split(".")[0] for name in imports_of(path)} & IMPURE == set()


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("brain_node.agent", "import brain_coord.routing"),
        ("brain_coord.routing.node", "from brain_coord.gateway import attempts"),
        ("brain_coord.gateway.attempts", "from brain_node.engine import supervisor"),
        ("brain_node.contract.messages", "from brain_node import gpu"),
    ],
)
def test_an_upward_import_would_be_found(tmp_path, module, line):
    path = tmp_path / "module.py"
    path.write_text(line)
    assert faults_in(path, module)


def test_whatever_the_type_checker_is_told_to_overlook_says_why():
    marks = [line for path in modules() for line in path.read_text().splitlines() if "type: ignore" in line]
    assert [line.strip() for line in marks if not re.search(r"type: ignore\[[a-z, -]+\]\s*# \S+", line)] == []
