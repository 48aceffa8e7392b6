"""The live view: one frame for all viewers, and each gets exactly what it has not seen."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from brain_coord.web import live
from brain_coord.web.live import Item, LiveHub
from brain_coord.web.view.rows import ClassRow


def row(name: str, models: int = 0) -> ClassRow:
    return ClassRow(name, "operator", True, models, None, None, None, None, 0)


@dataclass
class Scene:
    """A hub over rows that the test sets."""

    rows: dict[str, ClassRow]

    def __post_init__(self) -> None:
        self.hub = LiveHub(self.lists, "")

    async def lists(self) -> dict[str, list[Item]]:
        return {"classes": [Item(f"class-{name}", "parts/class.html", each) for name, each in self.rows.items()]}


@pytest.fixture
async def scene() -> Scene:
    return Scene({"A": row("A"), "B": row("B")})


async def heard(stream: Any) -> dict[str, Any]:
    async with asyncio.timeout(30):
        while True:
            event = (await anext(stream)).decode()
            if "data: " in event:
                return dict(json.loads(event.split("data: ", 1)[1]))


async def test_a_viewer_gets_the_changes_and_nothing_else(scene: Scene):
    await scene.hub.tick()
    stream = scene.hub.stream(scene.hub.position)
    assert set(await heard(stream)) == {"boot", "version", "next_s"}
    scene.rows["B"] = row("B", models=7)
    await scene.hub.tick()
    told = await heard(stream)
    assert list(told["html"]) == ["class-B"]
    assert "order" not in told
    scene.rows = {"B": scene.rows["B"], "C": row("C")}
    await scene.hub.tick()
    told = await heard(stream)
    assert told["order"] == {"classes": ["class-B", "class-C"]}
    assert list(told["html"]) == ["class-C"]
    await stream.aclose()
    assert scene.hub.viewers == 0


async def test_a_viewer_that_was_away_gets_what_it_missed_or_everything(scene: Scene):
    await scene.hub.tick()
    position = scene.hub.position
    for count in range(1, 4):
        scene.rows["A"] = row("A", models=count)
        await scene.hub.tick()
    stream = scene.hub.stream(position)
    assert [list((await heard(stream))["html"]) for _ in range(3)] == [["class-A"]] * 3
    await stream.aclose()
    for _ in range(live.TICKS_KEPT + 1):
        await scene.hub.tick()
    for seen in (position, "another-7", "", "nonsense", position.partition("-")[0] + "-²", position + "9" * 5000):
        stream = scene.hub.stream(seen)
        assert set((await heard(stream))["html"]) == {"class-A", "class-B"}
        await stream.aclose()


async def test_what_did_not_change_is_not_rendered_again(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    await scene.hub.tick()
    monkeypatch.setattr(live, "fragment", lambda *_, **__: pytest.fail("rendered again"))
    await scene.hub.tick()
    assert scene.hub.frame.version == 2


async def test_all_viewers_share_one_frame(scene: Scene):
    await scene.hub.tick()
    streams = [scene.hub.stream(scene.hub.position) for _ in range(50)]
    for stream in streams:
        await heard(stream)
    assert scene.hub.viewers == 50
    scene.rows["A"] = row("A", models=1)
    await scene.hub.tick()
    events = [await anext(stream) for stream in streams]
    assert all(event is events[0] for event in events)
    scene.hub.close()
    for stream in streams:
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_nobody_looking_costs_nothing(scene: Scene):
    running = asyncio.create_task(scene.hub.run())
    await asyncio.sleep(0)
    assert scene.hub.frame.version == 0
    running.cancel()
