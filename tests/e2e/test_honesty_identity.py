"""Who a node is: replayed hellos, stolen tickets, copied keys, many ids from one place."""

import asyncio
import json

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from brain_node.contract.identity import Identity
from tests.support.honesty import MODEL, chat, http_client, ready, until
from tests.support.minds import Mind
from tests.support.raw_node import RawNode


class Recorded(RawNode):
    """Keeps the hello that it sent."""

    async def hello(self, challenge):
        self.sent = await super().hello(challenge)
        return self.sent


async def say(lab, hello):
    """Link with a ready-made hello; what the coordinator answers."""
    url = lab.url.replace("http", "ws", 1) + "/node/v1/link"
    async with connect(url, compression=None, proxy=None) as link:
        await link.recv()
        await link.send(json.dumps(hello))
        return json.loads(await link.recv())


async def test_a_hello_that_was_heard_before_is_no_proof(lab):
    async with Recorded(lab.url, models=[MODEL], script=Mind()) as node:
        await ready(lab, node)
        answer = await say(lab, node.sent)
        assert (answer["type"], answer["code"], answer["retry"]) == ("refused", "bad_proof", False)
        assert lab.wait_for_node(node.node_id)["state"] == "ONLINE", "the true node is not disturbed"


async def test_a_hello_with_a_changed_offer_is_no_proof(lab):
    node = Recorded(lab.url, models=[MODEL])
    challenge = {"coordinator_key": "k", "nonce": "n"}
    hello = await node.hello(challenge)
    hello["offer"]["slots"] = 1000
    assert (await say(lab, hello))["code"] == "bad_proof"


@pytest.mark.parametrize(
    "changes", [{}, {"proof": {"of": "another kind"}}, {"node_id": "n:2:elsewhere", "offer": None}]
)
async def test_a_node_of_another_protocol_is_told_so_even_if_its_hello_cannot_be_read(lab, changes):
    hello = await Recorded(lab.url, models=[MODEL]).hello({"coordinator_key": "k", "nonce": "n"})
    answer = await say(lab, hello | {"protocol": 2} | changes)
    assert (answer["type"], answer["code"], answer["retry"]) == ("refused", "protocol", False)
    assert "the node 2" in answer["message"]
    assert (await say(lab, hello | {"offer": None}))["code"] == "bad_hello"


async def test_a_stolen_ticket_opens_no_slot_from_elsewhere_and_the_node_is_told(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as node:
        await ready(lab, node)
        url = lab.url.replace("http", "ws", 1) + "/node/v1/slot"
        headers = {"Authorization": f"Bearer {node.welcome['slot_ticket']}"}
        for _ in range(2):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url, proxy=None, additional_headers=headers, local_addr=("127.0.0.2", 0))
            assert refused.value.response.status_code == 403
        notices = [each for each in node.received if each["type"] == "notice" and each["code"] == "slot_address"]
        assert len(notices) == 1
        assert "bind_slots" in notices[0]["message"]


@pytest.mark.parametrize("lab", [{"bind_slots": False}], indirect=True)
async def test_an_operator_may_allow_slots_from_elsewhere(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind(), slots=1) as node:
        await ready(lab, node)
        url = lab.url.replace("http", "ws", 1) + "/node/v1/slot"
        headers = {"Authorization": f"Bearer {node.welcome['slot_ticket']}"}
        async with connect(url, proxy=None, additional_headers=headers, local_addr=("127.0.0.2", 0)):
            pass


async def test_a_ticket_ends_with_its_session(lab):
    node = RawNode(lab.url, models=[MODEL], script=Mind())
    await node.join()
    await ready(lab, node)
    ticket = node.welcome["slot_ticket"]
    await node.leave()
    await asyncio.to_thread(lab.wait_for_node, node.node_id, state="OFFLINE")
    url = lab.url.replace("http", "ws", 1) + "/node/v1/slot"
    with pytest.raises(InvalidStatus) as refused:
        await connect(url, proxy=None, additional_headers={"Authorization": f"Bearer {ticket}"})
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize(
    "lab", [{"addresses": {"sessions": 2, "new_ids_a_day": 3, "exempt_loopback": False}}], indirect=True
)
async def test_many_ids_from_one_address_are_limited_and_shown_to_the_operator(lab):
    nodes = [RawNode(lab.url, models=[MODEL], script=Mind()) for _ in range(3)]
    assert [(await node.join())["type"] for node in nodes] == ["welcome", "welcome", "refused"]
    assert (nodes[2].welcome["code"], nodes[2].welcome["retry"]) == ("address_limit", True)
    assert nodes[2].welcome["retry_after_s"] > 0
    await nodes[2].leave()
    (row,) = await asyncio.to_thread(lab.command, "nodes", "addresses")
    assert (row["address"], row["refused"]) == ("127.0.0.1", 1)
    assert row["connected"] == sorted(node.node_id for node in nodes[:2])
    async with http_client(lab) as client:
        assert "127.0.0.1" not in (await client.get("/v1/nodes")).text
    await nodes[0].leave()
    await asyncio.to_thread(lab.wait_for_node, nodes[0].node_id, state="OFFLINE")
    assert (await nodes[2].join())["type"] == "welcome"
    for node in nodes[1:]:
        await node.leave()
    await until(lambda: all(node["state"] == "OFFLINE" for node in lab.nodes()))
    fourth = RawNode(lab.url, models=[MODEL])
    assert (await fourth.join())["code"] == "address_limit"
    await fourth.leave()
    again = RawNode(lab.url, models=[MODEL], identity=nodes[0].identity)
    assert (await again.join())["type"] == "welcome", "a node that was here before is none of the new ones"
    await again.leave()


@pytest.mark.case("D-05")
async def test_the_same_id_with_another_key_is_refused_and_the_first_untouched(lab):
    async with RawNode(lab.url, models=[MODEL], script=Mind()) as first, http_client(lab) as client:
        await ready(lab, first)
        other = RawNode(lab.url, models=[MODEL])

        class Claims(Identity):
            """Another key that says it is the first node."""

            node_id = first.node_id

        other.identity = Claims(other.identity.key)
        answer = await other.join()
        assert (answer["type"], answer["code"], answer["retry"]) == ("refused", "bad_proof", False)
        await other.leave()
        assert (await client.post("/v1/chat/completions", json=chat())).status_code == 200
        assert lab.wait_for_node(first.node_id)["state"] == "ONLINE"


@pytest.mark.case("D-05")
async def test_two_machines_with_one_key_do_not_kick_each_other_for_ever(lab):
    identity, codes, over = Identity.generate(), [], asyncio.Event()

    async def machine():
        """Reconnects like an agent; gives up only when told to stay away for a while."""
        while not over.is_set():
            node = RawNode(lab.url, models=[MODEL], script=Mind(), identity=identity, slots=1)
            try:
                answer = await node.join()
                if answer["type"] == "refused":
                    codes.append(answer["code"])
                    assert answer["retry"]
                    assert answer["retry_after_s"] > 60
                    return
                ends = [asyncio.create_task(node.link.wait_closed()), asyncio.create_task(over.wait())]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
            except (ConnectionClosed, InvalidStatus, OSError):
                continue
            finally:
                await node.leave()

    machines = [asyncio.create_task(machine()) for _ in range(2)]
    try:
        done, _ = await asyncio.wait(machines, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        assert codes == ["duplicate_node"]
        await asyncio.sleep(0.5)
        assert lab.wait_for_node(identity.node_id)["state"] in ("ONLINE", "BUSY")
        assert any("duplicate_node" in line for line in lab.program.lines)
    finally:
        over.set()
        await asyncio.gather(*machines)
