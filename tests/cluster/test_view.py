"""The shared view: who holds which node, with gaps, restarts, deaths and two claims at once. Time is an argument."""

import random

import pytest

from brain_coord.cluster.view import PROTOCOL, Effect, Kind, SharedView

TTL = 6.0


def view(name: str = "a") -> SharedView:
    return SharedView(name, f"run-{name}", TTL)


def beat(name: str = "b", seq: int = 0, run: str = "1", leaving: bool = False, protocol: int = PROTOCOL) -> dict:
    members = {"seq": seq, "address": f"http://{name}", "leaving": leaving, "protocol": protocol, "clock": 0.0}
    return {"type": "beat", "from": name, "run": run, **members}


def nodes(
    name: str, seq: int, *facts, load=(), gone=(), run: str = "1", first: bool = False, last: bool = False
) -> dict:
    listed = [(node_id, epoch, {"says": name}) for node_id, epoch in facts]
    message = {"type": "nodes", "from": name, "run": run, "seq": seq, "facts": listed, "load": load, "gone": gone}
    return {**message, "first": first, "last": last}


def told(shared: SharedView, name: str = "b", *facts, seq: int = 1, now: float = 0.0) -> None:
    """A replica that was heard and has told all of it."""
    shared.hear(beat(name, seq - 1), now)
    shared.hear(nodes(name, seq, *facts, first=True, last=True), now)


def test_a_replica_that_is_heard_first_is_asked_for_everything():
    assert view().hear(beat(), 0.0) == [Effect(Kind.CAME, "b"), Effect(Kind.ASK, "b")]


def test_a_node_is_held_by_the_replica_that_names_it():
    shared = view()
    told(shared, "b", ("N1", 5))
    assert (shared.holder("N1").replica, shared.holder("N1").epoch) == ("b", 5)
    assert shared.holder("N2") is None


def test_changes_are_taken_in_the_order_of_their_numbers():
    shared = view()
    told(shared, "b", ("N1", 5))
    assert shared.hear(nodes("b", 2, ("N2", 1)), 0.0) == [Effect(Kind.NODE, "N2")]
    assert shared.hear(nodes("b", 2, ("N3", 1)), 0.0) == []  # heard before
    assert shared.holder("N3") is None


def test_a_gap_asks_for_all_of_it_and_what_is_not_named_again_is_gone():
    shared = view()
    told(shared, "b", ("N1", 5), ("N2", 5))
    assert shared.hear(nodes("b", 3, ("N3", 1)), 0.0) == [Effect(Kind.ASK, "b")]
    assert shared.hear(nodes("b", 4, ("N4", 1)), 0.0) == []  # until then nothing more is believed
    shared.hear(nodes("b", 5, ("N1", 5), first=True), 0.0)
    assert shared.holder("N2") is not None, "nothing goes before all of it was told"
    assert Effect(Kind.NODE, "N2") in shared.hear(nodes("b", 6, ("N3", 1), last=True), 0.0)
    assert [each for each in ("N1", "N2", "N3") if shared.holder(each)] == ["N1", "N3"]


def test_a_lost_last_message_is_noticed_by_the_next_beat():
    shared = view()
    told(shared, "b", ("N1", 5))
    assert shared.hear(beat(seq=1), 1.0) == []
    assert shared.hear(beat(seq=2), 2.0) == [Effect(Kind.ASK, "b")]
    assert shared.hear(beat(seq=2), 3.0) == [Effect(Kind.ASK, "b")], "asked again until it is told"


def test_the_jobs_of_others_are_those_that_we_did_not_give():
    shared = view()
    told(shared, "b", ("N1", 5))
    assert shared.hear(nodes("b", 2, load=[("N1", 4, {"a": 1, "c": 2})]), 0.0) == [Effect(Kind.LOAD, "N1")]
    assert shared.holder("N1").others("a") == 3
    assert shared.holder("N1").others("z") == 4
    shared.hear(nodes("b", 3, ("N1", 5)), 0.0)
    assert shared.holder("N1").running == 4, "new facts about the same session leave its load"


def test_a_silent_replica_is_gone_with_its_nodes():
    shared = view()
    told(shared, "b", ("N1", 5))
    assert shared.expire(TTL) == []
    assert shared.expire(TTL + 0.1) == [Effect(Kind.NODE, "N1"), Effect(Kind.LEFT, "b")]
    assert shared.holder("N1") is None
    assert shared.present() == ["a"]


def test_a_replica_is_there_as_long_as_it_says_anything_even_if_its_beats_wait_behind_that():
    shared = view()
    told(shared, "b", ("N1", 5))
    shared.hear(nodes("b", 2, ("N2", 5)), TTL)
    assert shared.expire(TTL + 0.1) == []


def test_the_nodes_of_a_replica_that_takes_no_connection_are_out_of_reach_until_it_does():
    shared = view()
    told(shared, "b", ("N1", 5))
    assert shared.reached("b", reachable=False) == [Effect(Kind.NODE, "N1")]
    assert shared.reached("b", reachable=False) == []
    assert shared.holder("N1") is None
    assert shared.present() == ["a"]
    assert shared.claimed("N1")
    assert shared.hear(beat(seq=1), 1.0) == [], "it is still heard, and need not tell all of it again"
    shared.hear(nodes("b", 2, ("N2", 6)), 1.0)
    assert shared.holder("N2") is None
    assert len(shared.reached("b", reachable=True)) == 2
    assert shared.holder("N2").replica == "b"
    assert shared.reached("z", reachable=False) == []


def test_who_leads_does_not_hang_on_who_reaches_whom():
    shared = view("b")
    told(shared, "a")
    assert shared.leader() == "a"
    shared.reached("a", reachable=False)
    assert shared.leader() == "a"
    shared.hear(beat("a", 1, leaving=True), 1.0)
    assert shared.leader() == "b"


def test_a_restarted_replica_starts_from_nothing():
    shared = view()
    told(shared, "b", ("N1", 5))
    effects = shared.hear(beat(run="2"), 1.0)
    assert effects[0] == Effect(Kind.NODE, "N1")
    assert effects[-1] == Effect(Kind.ASK, "b")
    assert shared.hear(nodes("b", 9, ("N9", 1), run="1", first=True), 1.0) == [], "its earlier process is not heard"


def test_a_leaving_replica_holds_nothing_any_more_but_still_exists():
    shared = view()
    told(shared, "b", ("N1", 5))
    assert shared.hear(beat(seq=1, leaving=True), 1.0) == [Effect(Kind.NODE, "N1"), Effect(Kind.LEFT, "b")]
    assert shared.holder("N1") is None
    assert shared.present() == ["a"]
    assert "b" in shared.peers


def test_the_newest_session_wins_everywhere():
    shared, other = view("a"), view("c")
    epoch = shared.claim("N1", wall_ms=1000)
    assert epoch == 1000
    for each in (shared, other):
        told(each, "b", ("N1", 2000))
    told(other, "a", ("N1", 1000))
    assert shared.holder("N1").replica == "b"
    assert other.holder("N1").replica == "b"


def test_a_session_that_begins_later_wins_whatever_the_clocks_say():
    shared = view("a")
    told(shared, "b", ("N1", 9_000))
    assert shared.claim("N1", wall_ms=1000) == 9_001
    assert shared.holder("N1") is None, "we hold it"


def test_a_second_session_here_has_a_higher_epoch_even_within_a_millisecond():
    shared = view("a")
    assert [shared.claim("N1", 1000) for _ in range(3)] == [1000, 1001, 1002]


def test_two_claims_of_one_epoch_have_one_winner():
    for name, expected in (("a", "b"), ("c", None)):
        shared = view(name)
        shared.claim("N1", 1000)
        told(shared, "b", ("N1", 1000))
        found = shared.holder("N1")
        assert (None if found is None else found.replica) == expected


def test_when_the_holder_goes_the_older_claim_counts_again():
    shared = view("a")
    told(shared, "b", ("N1", 2000))
    told(shared, "c", ("N1", 1000))
    shared.hear(nodes("b", 2, gone=["N1"]), 0.0)
    assert shared.holder("N1").replica == "c"


def test_a_replica_of_another_protocol_is_let_alone():
    shared = view()
    assert shared.hear(beat(protocol=PROTOCOL + 1), 0.0) == [Effect(Kind.STRANGER, "b")]
    assert shared.hear(nodes("b", 1, ("N1", 5), first=True, last=True), 0.0) == []
    assert shared.present() == ["a"]
    told(shared, "b", ("N1", 5), seq=3)
    assert Effect(Kind.NODE, "N1") in shared.hear(beat(protocol=PROTOCOL + 1), 1.0)


def test_of_two_that_bear_one_name_the_newest_has_it_as_long_as_it_is_heard():
    shared = view()
    told(shared, "b", ("N1", 5))
    shared.hear(beat(run="2"), 1.0)
    shared.hear(nodes("b", 1, ("N2", 5), run="2", first=True, last=True), 1.0)
    assert shared.hear(beat(seq=1, run="1"), 2.0) == [], "else both were asked for everything with each beat"
    assert shared.holder("N2") is not None
    shared.expire(1.0 + TTL + 0.1)
    assert Effect(Kind.CAME, "b") in shared.hear(beat(seq=1, run="1"), 8.0)


def test_another_with_our_name_is_found_out():
    assert view("a").hear(beat("a", run="other"), 0.0) == [Effect(Kind.TWIN, "a")]
    assert view("a").hear(beat("a", run="run-a"), 0.0) == []


def test_somebody_who_missed_something_is_told_and_decisions_are_passed_on():
    shared = view("a")
    shared.hear(beat("b"), 0.0)
    assert shared.hear({"type": "ask", "from": "b", "run": "1", "of": ["a", "c"]}, 0.0) == [Effect(Kind.TELL, "b")]
    assert shared.hear({"type": "ask", "from": "b", "run": "1", "of": ["c"]}, 0.0) == []
    assert shared.hear({"type": "decided", "from": "b", "run": "1", "node": "N1"}, 0.0) == [Effect(Kind.DECIDED, "N1")]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_lost_the_views_agree_in_the_end(seed):
    """Three replicas, sessions that move at random, messages lost at random: after one quiet round all see the same."""
    rng = random.Random(seed)
    names = ("a", "b", "c")
    views = {name: view(name) for name in names}
    seqs = dict.fromkeys(names, 0)
    asked: set[str] = set()

    def send(message: dict, loss: float) -> None:
        for name in names:
            if name == message["from"] or rng.random() >= loss:
                for effect in views[name].hear(message, now):
                    if effect.kind is Kind.ASK:
                        asked.add(effect.subject)
                    elif effect.kind is Kind.NODE and views[name].holder(effect.subject) is not None:
                        views[name].release(effect.subject)

    def all_of(name: str, loss: float) -> None:
        seqs[name] += 1
        facts = list(views[name].own.items())
        send(nodes(name, seqs[name], *facts, run=f"run-{name}", first=True, last=True), loss)

    now = 0.0
    for step in range(200):
        now += 0.1
        loss = 0.3 if step < 150 else 0.0
        name = rng.choice(names)
        if step < 150:
            node_id = f"N{rng.randrange(5)}"
            epoch = views[name].claim(node_id, wall_ms=int(now * 1000))
            seqs[name] += 1
            send(nodes(name, seqs[name], (node_id, epoch), run=f"run-{name}"), loss)
        for each in names:
            send(beat(each, seqs[each], run=f"run-{each}"), loss)
        for each in sorted(asked):
            asked.discard(each)
            all_of(each, loss)
    for name in names:
        all_of(name, 0.0)
    for node_id in (f"N{number}" for number in range(5)):
        holders = {name: name if node_id in views[name].own else None for name in names}
        seen = {
            (holder.replica if (holder := views[name].holder(node_id)) is not None else holders[name]) for name in names
        }
        assert len(seen) == 1, (node_id, seen)
        assert sum(each is not None for each in holders.values()) <= 1, "a node is linked at one replica at most"
