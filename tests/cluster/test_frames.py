"""Frames of a hop's answer, however the network cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.cluster.frames import DATA, END, HEAD, BadFrame, FrameReader, frame, told


@given(st.lists(st.tuples(st.sampled_from([HEAD, DATA, END]), st.binary(max_size=300))), st.integers(1, 64))
def test_frames_come_out_as_they_went_in(frames, size):
    stream = b"".join(frame(kind, content) for kind, content in frames)
    reader = FrameReader()
    cut = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [each for piece in cut for each in reader.feed(piece)] == frames


def test_what_is_no_frame_is_refused():
    for wrong in (b"<html>", b"D\xff\xff\xff\xff", b"X\x00\x00\x00\x00"):
        with pytest.raises(BadFrame):
            list(FrameReader().feed(wrong))


def test_a_told_frame_is_json():
    assert list(FrameReader().feed(told(END, cause=None))) == [(END, b'{"cause":null}')]
