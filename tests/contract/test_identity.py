"""Node identity: ids, proofs, and the key file."""

import base64
import os
import stat

import pytest

from brain_node.contract.identity import Identity, IdentityError, load_or_create_identity, node_id_of, verify_hello


def hello_of(identity: Identity, **changes):
    hello = {
        "type": "hello",
        "protocol": 1,
        "node_id": identity.node_id,
        "public_key": base64.b64encode(identity.public_key).decode(),
        "report": {"os": "Linux"},
        "offer": {"models": []},
        **changes,
    }
    return {**hello, "proof": identity.prove("coordinator", "nonce", hello)}


def test_the_node_id_comes_from_the_public_key():
    assert node_id_of(b"\x00" * 32) == "N-66687AADF862BD77"


def test_a_good_hello_verifies():
    assert verify_hello(hello_of(Identity.generate()), "coordinator", "nonce") is None


def test_the_order_of_keys_does_not_matter():
    hello = hello_of(Identity.generate())
    assert verify_hello(dict(reversed(hello.items())), "coordinator", "nonce") is None


@pytest.mark.parametrize(("coordinator", "nonce"), [("other", "nonce"), ("coordinator", "later")])
def test_a_hello_cannot_be_replayed_elsewhere_or_later(coordinator, nonce):
    assert "does not verify" in (verify_hello(hello_of(Identity.generate()), coordinator, nonce) or "")


def test_a_changed_hello_does_not_verify():
    hello = hello_of(Identity.generate())
    hello["offer"] = {"models": [{"id": "another/model"}]}
    assert "does not verify" in (verify_hello(hello, "coordinator", "nonce") or "")


def test_a_borrowed_node_id_is_found():
    mine, other = Identity.generate(), Identity.generate()
    assert "does not belong" in (verify_hello(hello_of(mine, node_id=other.node_id), "coordinator", "nonce") or "")


@pytest.mark.parametrize("field", ["public_key", "proof"])
@pytest.mark.parametrize("value", [None, 7, "%%%", "AAAA", ""])
def test_rubbish_is_a_reason_and_not_an_exception(field, value):
    hello = hello_of(Identity.generate())
    hello[field] = value
    assert verify_hello(hello, "coordinator", "nonce") is not None


def test_the_same_file_gives_the_same_identity(tmp_path):
    path = tmp_path / "data" / "node.key"
    assert load_or_create_identity(path).node_id == load_or_create_identity(path).node_id


@pytest.mark.case("F-03")
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
def test_the_key_file_is_private_under_any_umask(tmp_path, umask):
    path = tmp_path / "data" / "node.key"
    before = os.umask(umask)
    try:
        load_or_create_identity(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.case("F-03")
def test_a_loose_key_file_is_tightened(tmp_path):
    path = tmp_path / "node.key"
    first = load_or_create_identity(path)
    path.chmod(0o644)
    assert load_or_create_identity(path).node_id == first.node_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"garbage\n", b"brain-node-key-v1 AAAA\n", b"\xff\xfe"])
def test_a_damaged_key_file_is_an_error_with_the_way_out_and_stays(tmp_path, content):
    path = tmp_path / "node.key"
    path.write_bytes(content)
    with pytest.raises(IdentityError, match="key file"):
        load_or_create_identity(path)
    assert path.read_bytes() == content


def test_an_exported_identity_can_be_imported():
    identity = Identity.generate()
    assert Identity.parse(identity.export()).node_id == identity.node_id
