"""A node that claims more slots than its engine serves gains nothing: slots are what it was seen to bear."""

import asyncio

from brain_coord.measure.slots import START
from tests.support.honesty import MODEL, chat, http_client, ready, until
from tests.support.lab import Lab
from tests.support.minds import Mind
from tests.support.raw_node import RawNode

WORDS = ["quiet "] * 16


def one_lane(mind=Mind):
    return mind(pause_s=0.02, lanes=1, say=lambda job: WORDS)


class BeginsAtOnce(Mind):
    """Sends a first event of every answer as soon as it has the job, and then takes its time."""

    async def _answer(self, job):
        accept, head = job.accept, job.head
        job.accept = job.head = _nothing
        await accept()
        await head()
        await job.send(b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n')
        await super()._answer(job)


async def _nothing(*_, **__):
    return None


def seen(lab, node):
    return next(each for each in lab.nodes() if each["node_id"] == node.node_id)


async def streams(client, node, count):
    """The statuses of so many streams at once on one node."""

    async def one(number):
        reply = await client.post("/v1/chat/completions", json=chat(number, node=node.node_id, stream=True))
        return reply.status_code

    return await asyncio.gather(*(one(number) for number in range(count)))


async def collapsed(lab, node):
    def there():
        found = seen(lab, node)
        return found if found["measured"]["slots"]["collapsed"] else None

    return await until(there)


async def test_64_claimed_slots_of_an_engine_that_serves_one_are_cut_to_what_it_bears(tmp_path):
    with Lab(tmp_path / "coord") as lab:
        async with (
            RawNode(lab.url, models=[MODEL], slots=64, script=one_lane()) as liar,
            http_client(lab) as client,
        ):
            await ready(lab, liar)
            before = seen(lab, liar)
            assert (before["slots"], before["reported"]["slots"]) == (START, 64), (
                "at first a claim is worth a few slots"
            )
            # Some begin every answer at once: a first event costs nothing, and proves nothing.
            for script in (one_lane(), one_lane(BeginsAtOnce), one_lane(), one_lane(BeginsAtOnce), one_lane()):
                liar.script = script
                await streams(client, liar, 24)
                after = await collapsed(lab, liar)
                if after["slots"] <= 12:
                    break
            assert after["slots"] <= 12
            assert after["reported"]["slots"] == 64

            # Crowding in its jobs has cost it speed, and so rank.
            speed = [each["measured"]["credited_tok_s"][MODEL] for each in (before, after)]
            assert speed[1] < speed[0] / 2
            identity = liar.identity
            await liar.leave()
            async with RawNode(lab.url, models=[MODEL], slots=1000, identity=identity, script=one_lane()) as back:
                await ready(lab, back)
                assert seen(lab, back)["slots"] <= after["slots"], "joining again skips nothing"
        await asyncio.to_thread(lab.program.stop)
        await asyncio.to_thread(lab.restart)
        async with RawNode(lab.url, models=[MODEL], slots=64, identity=identity, script=one_lane()) as again:
            await asyncio.to_thread(lab.wait_for_node, again.node_id, state="ONLINE")
            known = seen(lab, again)
            assert known["measured"]["slots"] == after["measured"]["slots"], "nor does a restart of the coordinator"


async def test_an_honest_node_that_batches_is_given_what_it_claims(tmp_path):
    with Lab(tmp_path / "coord") as lab:
        async with (
            RawNode(lab.url, models=[MODEL], slots=32, script=Mind(pause_s=0.012)) as node,
            http_client(lab) as client,
        ):
            await ready(lab, node)
            node.script = Mind(pause_s=0.016, say=lambda job: WORDS)
            assert set(await streams(client, node, 32)) == {200}
            assert seen(lab, node)["slots"] == 32
            assert not seen(lab, node)["measured"]["slots"]["collapsed"]
