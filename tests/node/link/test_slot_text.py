"""Messages written without the model are those that the model would write."""

import orjson
import pytest

from brain_node.contract.messages import Accepted, End, Head, encode
from brain_node.link.slot_text import accepted_text, end_text, head_text

IDS = ["j1", 'quo"te', "back\\slash", "~" * 64]


@pytest.mark.parametrize("job_id", IDS)
def test_accepted(job_id):
    assert accepted_text(job_id).decode() == encode(Accepted(id=job_id))


@pytest.mark.parametrize("job_id", IDS)
@pytest.mark.parametrize("cause", [None, "engine_lost"])
def test_end(job_id, cause):
    assert end_text(job_id, cause).decode() == encode(End(id=job_id, ok=cause is None, cause=cause))


@pytest.mark.parametrize("retry_after", [None, "17"])
def test_head(retry_after):
    model = Head(id="j", status=503, content_type="text/plain; charset=ütf", retry_after=retry_after)
    assert head_text("j", 503, "text/plain; charset=ütf", retry_after).decode() == encode(model)


def test_headers_longer_than_the_protocol_carries_are_cut():
    text = orjson.loads(head_text("j", 200, "x" * 300, "y" * 100))
    assert Head.model_validate({name: value for name, value in text.items() if name != "type"})
