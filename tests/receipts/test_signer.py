"""The signing key: private from its first instant, and never silently replaced."""

import os
import stat

import pytest

from brain_coord.receipts.signer import KEY_FILE, Signer, SignerError, key_id_of


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.case("F-03")
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_the_key_file_is_private_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        Signer.generate().save(tmp_path / "data" / KEY_FILE)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "data" / KEY_FILE) == 0o600
    assert mode_of(tmp_path / "data") == 0o700


@pytest.mark.case("F-03")
def test_a_loose_key_file_is_tightened(tmp_path):
    path = tmp_path / KEY_FILE
    Signer.generate().save(path)
    path.chmod(0o644)
    Signer.load(path)
    assert mode_of(path) == 0o600


def test_a_saved_key_is_the_same_key(tmp_path):
    signer = Signer.generate()
    signer.save(tmp_path / KEY_FILE)
    again = Signer.load(tmp_path / KEY_FILE)
    assert (again.key_id, again.public_key) == (signer.key_id, signer.public_key)
    assert again.sign(b"x") == signer.sign(b"x")


def test_the_key_id_is_made_from_the_public_key():
    signer = Signer.generate()
    assert signer.key_id == key_id_of(signer.public_key)
    assert len(signer.key_id) == 16


@pytest.mark.parametrize("content", [b"", b"nonsense", b"brain-coord-signing-key-v1 AAAA\n", b"\xff\xfe", b"x " * 99])
def test_a_damaged_key_is_an_error_with_the_way_out_and_stays_as_it_is(tmp_path, content):
    path = tmp_path / KEY_FILE
    path.write_bytes(content)
    with pytest.raises(SignerError) as error:
        Signer.load(path)
    assert error.value.code == "signing_key_damaged"
    assert "backup" in error.value.next_step
    assert path.read_bytes() == content


def test_a_truncated_key_is_damaged(tmp_path):
    path = tmp_path / KEY_FILE
    Signer.generate().save(path)
    path.write_text(path.read_text()[:-6])
    with pytest.raises(SignerError):
        Signer.load(path)


def test_a_folder_in_its_place_cannot_be_read(tmp_path):
    (tmp_path / KEY_FILE).mkdir()
    with pytest.raises(SignerError) as error:
        Signer.load(tmp_path / KEY_FILE)
    assert error.value.code == "signing_key_unreadable"


def test_the_private_key_shows_in_no_text():
    signer = Signer.generate()
    assert signer.private_key.private_bytes_raw().hex() not in repr(signer)
