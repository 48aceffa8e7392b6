"""What the shared secret proves, and what it does not let in."""

import pytest

from brain_coord.cluster.secret import FRESH_S, ClusterSecret, Doorkeeper, NotOurs, same_body

SECRET = ClusterSecret("k" * 40)
PATH = "/cluster/v1/job"
CLAIMS = {"from": "a", "to": "b", "path": PATH, "run": "1", "at": 1000.0, "nonce": "n1", "sha256": "00", "node": "N1"}


def test_a_message_of_ours_is_read_and_any_other_refused():
    sealed = SECRET.seal(b"hello")
    assert SECRET.unseal(sealed) == b"hello"
    for wrong in (sealed[:-1], sealed + b"!", b"", sealed[1:], ClusterSecret("x" * 40).seal(b"hello")):
        with pytest.raises(NotOurs):
            SECRET.unseal(wrong)


def test_a_message_is_no_proof_of_a_hop_and_a_proof_no_message():
    proof = SECRET.prove(CLAIMS)
    with pytest.raises(NotOurs):
        SECRET.proved(SECRET.seal(b"{}").hex())
    with pytest.raises(NotOurs):
        SECRET.unseal(proof.encode())


def test_a_hop_comes_in_once():
    door = Doorkeeper(SECRET, "b", "1")
    header = SECRET.prove(CLAIMS)
    assert door.admit(header, PATH, 1000.0)["node"] == "N1"
    with pytest.raises(NotOurs, match="used before"):
        door.admit(header, PATH, 1001.0)


@pytest.mark.parametrize(
    ("change", "now", "path"),
    [
        ({"to": "c"}, 1000.0, PATH),
        ({"run": "0"}, 1000.0, PATH),
        ({}, 1000.0, "/cluster/v1/event"),
        ({}, 1000.0 + FRESH_S + 1, PATH),
        ({}, 1000.0 - FRESH_S - 1, PATH),
    ],
    ids=["made for another", "made for the process before", "for another path", "old", "from the future"],
)
def test_a_proof_holds_for_one_receiver_one_path_and_a_short_time(change, now, path):
    with pytest.raises(NotOurs):
        Doorkeeper(SECRET, "b", "1").admit(SECRET.prove({**CLAIMS, **change}), path, now)


@pytest.mark.parametrize("header", ["", ".", "a.b", "e30=.AAAA", "ü.ü"])
def test_rubbish_is_refused_without_a_fault(header):
    with pytest.raises(NotOurs):
        Doorkeeper(SECRET, "b", "1").admit(header, PATH, 1000.0)


def test_a_changed_claim_breaks_the_proof():
    text, _, mac = SECRET.prove(CLAIMS).partition(".")
    other = SECRET.prove({**CLAIMS, "node": "N2"}).partition(".")[0]
    assert text != other
    with pytest.raises(NotOurs):
        Doorkeeper(SECRET, "b", "1").admit(f"{other}.{mac}", PATH, 1000.0)


def test_used_proofs_are_forgotten_when_they_are_too_old_to_be_used_again():
    door = Doorkeeper(SECRET, "b", "1")
    for number in range(1000):
        door.admit(SECRET.prove({**CLAIMS, "nonce": str(number), "at": float(number)}), PATH, float(number))
    assert len(door._seen) <= 2 * FRESH_S + 2


def test_the_proof_is_bound_to_the_body():
    import hashlib

    assert same_body({"sha256": hashlib.sha256(b"body").hexdigest()}, b"body")
    assert not same_body({"sha256": hashlib.sha256(b"body").hexdigest()}, b"other")


def test_the_secret_is_in_no_repr_and_not_in_what_is_sent():
    assert "kkkk" not in repr(SECRET) + SECRET.prove(CLAIMS) + SECRET.prefix


def test_clusters_with_other_secrets_use_other_names_in_redis():
    assert SECRET.prefix != ClusterSecret("x" * 40).prefix
