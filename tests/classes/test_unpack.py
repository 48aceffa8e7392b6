"""Answers that were compressed unasked come out as they were, in bounded pieces, and damaged ones are told."""

import gzip
import zlib

import pytest

from brain_coord.classes.unpack import PIECE_BYTES, Damaged, Unpacker, unpacker_of

TEXT = b"".join(b"data: %d\n\n" % number for number in range(50_000))
ENCODERS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress}


def unpacked(unpack: Unpacker, data: bytes, step: int) -> bytes:
    out = b""
    for at in range(0, len(data), step):
        unpack.feed(data[at : at + step])
        while piece := unpack.take():
            assert len(piece) <= PIECE_BYTES
            out += piece
    unpack.end()
    return out


@pytest.mark.parametrize("encoding", ENCODERS)
@pytest.mark.parametrize("step", [1, 997, 1 << 20])
def test_what_was_packed_comes_out_whatever_the_pieces_are(encoding, step):
    text = TEXT[:5000] if step == 1 else TEXT
    assert unpacked(unpacker_of(encoding.upper()), ENCODERS[encoding](text), step) == text


def test_joined_members_are_one_answer():
    assert unpacked(unpacker_of("gzip"), gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"


def test_an_event_can_be_had_as_soon_as_it_was_flushed():
    packer, unpack = zlib.compressobj(wbits=31), unpacker_of("gzip")
    unpack.feed(packer.compress(b"data: one\n\n") + packer.flush(zlib.Z_SYNC_FLUSH))
    assert unpack.take() == b"data: one\n\n"
    assert unpack.take() == b""


def test_a_bomb_is_handed_out_piece_by_piece():
    unpack = unpacker_of("gzip")
    unpack.feed(gzip.compress(bytes(64 << 20)))
    taken = [len(unpack.take()) for _ in range(10)]
    assert taken == [PIECE_BYTES] * 10


def test_plain_answers_need_nothing():
    assert unpacker_of("") is None
    assert unpacker_of(" Identity") is None


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress"])
def test_other_encodings_are_refused(encoding):
    with pytest.raises(Damaged, match="is not known here"):
        unpacker_of(encoding)


def test_what_is_no_gzip_or_breaks_off_is_damaged():
    with pytest.raises(Damaged):
        unpacked(unpacker_of("gzip"), b"not packed at all", 100)
    with pytest.raises(Damaged, match="broke off"):
        unpacked(unpacker_of("gzip"), gzip.compress(TEXT)[:-20], 1000)
