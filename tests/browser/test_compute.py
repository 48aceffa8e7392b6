"""Products over real tabs in Chromium: exact, checked, and right in the end whatever a tab does."""

import asyncio
import base64
import hashlib
import json

import numpy as np
import pytest

from brain_coord.browser.u32 import seeded
from tests.support.tabs import eventually, lent_tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

SEED = 0xFEDC_BA98_7654_3210
BIG = {"rows": 1024, "inner": 1024, "columns": 1024, "seed": SEED}
WORK = {"rows": 512, "inner": 1024, "columns": 512, "seed": SEED}
WORK_SHA256 = hashlib.sha256(
    (seeded(SEED, "a", range(512), range(1024), 1024) @ seeded(SEED, "b", range(1024), range(512), 512)).tobytes()
).hexdigest()


def expected(rows: int, inner: int, columns: int, seed: int):
    a = seeded(seed, "a", range(rows), range(inner), inner)
    return a @ seeded(seed, "b", range(inner), range(columns), columns)


def dishonest(body: str):
    """A tab that is honest in its challenge (whose sizes it can tell) and does this with customers' work."""

    def change(source: str) -> str:
        assert "export async function multiply(" in source
        renamed = source.replace("export async function multiply(", "async function honest(")
        return (
            renamed
            + "\nexport async function multiply(device, header, payload) {"
            + "\n  const work = header.inner === 1024 && header.columns > 64;"
            + "\n  const numbers = () => honest(device, header, payload);"
            + f"\n  {body}\n}}\n"
        )

    return {"matmul.js": change}


async def standing(place, tab_id):
    async with place.api() as client:
        tabs = (await client.get("/v1/tabs")).json()["data"]
    return next(tab for tab in tabs if tab["node_id"] == tab_id)


async def test_three_tabs_multiply_1024_by_1024_exactly_and_the_receipt_says_how_it_was_verified(place):
    async with (
        lent_tab(place.browser, place.url) as one,
        lent_tab(place.browser, place.url) as two,
        lent_tab(place.browser, place.url) as three,
        place.api() as client,
    ):
        reply = await client.post("/v1/compute/matmul", json={**BIG, "wait": False, "privacy": "PRIVATE"})
        assert reply.status_code == 202, reply.text
        job = reply.json()["id"]
        async with client.stream("GET", f"/v1/compute/jobs/{job}/events") as events:
            told = [json.loads(line[6:]) async for line in events.aiter_lines() if line.startswith("data: ")]
        done = [event["units_done"] for event in told]
        assert done == sorted(done)
        assert len(set(done)) > 2, "progress came while it ran"
        last = told[-1]
        assert (last["status"], last["verified"]) == ("completed", True)
        raw = (await client.get(f"/v1/compute/jobs/{job}/result")).content
        assert hashlib.sha256(raw).hexdigest() == last["result_sha256"]
        assert np.array_equal(np.frombuffer(raw, "<u4").reshape(1024, 1024), expected(1024, 1024, 1024, SEED))

        ids = sorted([await one.node_id, await two.node_id, await three.node_id])
        assert last["tabs"] == ids, "every tab had its part"
        receipt = (await client.get(f"/v1/receipts/{last['receipt']}")).json()["body"]
        assert receipt["verified"] is True
        assert receipt["verification"]["rounds"] == 24
        assert receipt["class"] == "BROWSER_NETWORK"
        assert receipt["compute"]["result_sha256"] == last["result_sha256"]
        assert sorted({tab for unit in receipt["compute"]["units"] for tab in unit["tabs"]}) == ids
        assert receipt["decision"]["node"]["decision"]["selected"] in ids
        verdict = (await client.get(f"/v1/receipts/{last['receipt']}/verify")).json()
        assert verdict["valid"] is True
        page = await client.get(f"/network/receipts/{last['receipt']}")
        assert page.status_code == 200
        assert not any(tab.faults for tab in (one, two, three))
        assert one.hosts == {place.url.split("//")[1]}


async def test_uploaded_matrices_and_odd_sizes(place):
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2**32, (37, 129), dtype=np.uint32)
    b = rng.integers(0, 2**32, (129, 65), dtype=np.uint32)
    body = {
        "rows": 37,
        "inner": 129,
        "columns": 65,
        "a": base64.b64encode(a.tobytes()).decode(),
        "b": base64.b64encode(b.tobytes()).decode(),
        "result": "base64",
        "redundancy": 2,
    }
    async with (
        lent_tab(place.browser, place.url) as one,
        lent_tab(place.browser, place.url) as two,
        place.api() as client,
    ):
        reply = await client.post("/v1/compute/matmul", json=body)
        assert reply.status_code == 200, reply.text
        got = np.frombuffer(base64.b64decode(reply.json()["result"]), "<u4").reshape(37, 65)
        assert np.array_equal(got, a @ b)
        assert reply.json()["tabs"] == sorted([await one.node_id, await two.node_id]), "each unit was made twice"


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("const made = await numbers(); if (work) made[7] ^= 1 << 31; return made;", "wrong_result"),
        (
            "if (!work) { await new Promise((done) => setTimeout(done, 1500)); return numbers(); }"
            " return new Uint32Array(header.rows * header.columns);",
            "too_fast",
        ),
    ],
    ids=["flips one bit", "answers too fast"],
)
async def test_a_tab_that_lies_is_caught_and_the_product_is_right_all_the_same(place, body, cause):
    async with (
        lent_tab(place.browser, place.url) as honest,
        lent_tab(place.browser, place.url, changed=dishonest(body)) as liar,
        place.api() as client,
    ):
        reply = await client.post("/v1/compute/matmul", json=WORK)
        assert reply.status_code == 200, reply.text
        job = reply.json()
        assert job["result_sha256"] == WORK_SHA256
        assert job["tabs"] == [await honest.node_id]
        assert {(fault["tab"], fault["cause"]) for fault in job["faults"]} >= {(await liar.node_id, cause)}
        caught = await standing(place, await liar.node_id)
        assert caught["state"] == "DEGRADED"
        assert caught["measured"]["answers_refused"] >= 1
        assert caught["measured"]["reliability"] < 70
        assert "Set aside" in await liar.text("state"), "its owner is told"
        receipt = (await client.get(f"/v1/receipts/{job['receipt']}")).json()["body"]
        assert cause in {attempt["cause"] for attempt in receipt["attempts"]}


async def test_a_tab_that_closes_in_the_middle_leaves_its_unit_to_another(place):
    async with lent_tab(place.browser, place.url) as stays, place.api() as client:
        async with lent_tab(place.browser, place.url) as leaves:
            asking = asyncio.create_task(client.post("/v1/compute/matmul", json=WORK))
            leaver = await leaves.node_id

            async def works():
                return (await standing(place, leaver))["active"] > 0

            await eventually(works)
        reply = await asking
        assert reply.status_code == 200, reply.text
        job = reply.json()
        assert job["result_sha256"] == WORK_SHA256
        assert (leaver, "tab_lost") in {(fault["tab"], fault["cause"]) for fault in job["faults"]}
        assert await stays.node_id in job["tabs"]


async def test_without_a_tab_the_answer_says_so(place):
    async with place.api() as client:

        async def all_left():
            return all(tab["state"] == "OFFLINE" for tab in (await client.get("/v1/tabs")).json()["data"])

        await eventually(all_left)  # those of the tests before
        reply = await client.post("/v1/compute/matmul", json=WORK)
        assert reply.status_code == 503
        assert reply.json()["error"]["code"] == "no_capacity"
        assert "no tab online" in reply.json()["error"]["message"]
        wrong = await client.post("/v1/compute/matmul", json={"rows": 4, "inner": 4, "columns": 0, "seed": 1})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "columns")
        neither = await client.post("/v1/compute/matmul", json={"rows": 4, "inner": 4, "columns": 4})
        assert (neither.status_code, neither.json()["error"]["code"]) == (400, "missing_field")
