"""What an upstream's answers teach its class."""

import pytest

from brain_coord.classes.health import TargetHealth
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.upstream import Offer, Upstream, UpstreamSpec
from brain_coord.classes.upstream_http import UpstreamHttp
from brain_coord.classes.upstream_target import UpstreamTarget
from brain_coord.measure.speed import StreamClock, StreamSample, TokenCount
from brain_coord.routing.vocabulary import ResourceClass


@pytest.mark.parametrize(("text_bytes", "learnt"), [(0, 0), (4, 1)])
async def test_an_answer_with_nothing_in_it_makes_its_class_neither_faster_nor_more_reliable(text_bytes, learnt):
    offer = Offer("m", "m")
    spec = UpstreamSpec("up", "http://127.0.0.1:1", {"m": offer}, frozenset({"/v1/chat/completions"}))
    samples, http = ClassSamples(), UpstreamHttp()
    target = UpstreamTarget(http, Upstream(spec, TargetHealth("up")), offer, ResourceClass.EXTERNAL_MODEL, samples)
    clock = StreamClock(0.0)
    clock.output(1.0, text_bytes)
    sample = StreamSample(clock, TokenCount(1, "usage"), None)
    target.outcome("completed", first_output_ms=1.0, total_ms=2.0, stream=sample)
    assert samples.estimates.confidence == learnt
    await http.close()
