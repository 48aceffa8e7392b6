"""Which upstream of a class takes a request: pure, whatever the order in which they are looked at."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_coord.classes.backend import Query
from brain_coord.classes.prices import Prices, by_ask
from brain_coord.classes.upstream import Offer
from brain_coord.classes.upstream_ranking import Option, rank_upstreams, wanted
from brain_coord.routing.inputs import NodeRequest
from brain_coord.routing.vocabulary import Mode

QUERY = Query("m", "/v1/chat/completions", NodeRequest())


def option(name: str, *, cost: float | None = 1.0, quality: float | None = 0.5, load: float = 0.0, **more) -> Option:
    return Option(name, Offer("m", "m", Prices(), quality), cost, load, **more)


def order(*options: Option, mode: Mode = Mode.AUTO) -> list[str]:
    return [each.name for each in rank_upstreams(replace(QUERY, mode=mode), options).able]


def test_the_mode_decides_between_price_and_quality():
    cheap, good = option("cheap", cost=1, quality=0.2), option("good", cost=9, quality=0.9)
    assert order(good, cheap, mode=Mode.CHEAP) == ["cheap", "good"]
    assert order(cheap, good, mode=Mode.QUALITY) == ["good", "cheap"]


def test_an_unknown_price_is_penalised_and_never_guessed():
    assert order(option("unknown", cost=None), option("free", cost=0.0), option("dear", cost=9.0)) == [
        "free",
        "unknown",
        "dear",
    ]


def test_equals_share_the_load_and_then_the_order_of_the_file_counts():
    assert order(option("a", load=0.5), option("b", load=0.25), option("c", load=0.25)) == ["b", "c", "a"]


def test_one_in_trouble_comes_last_however_good_it_is_and_one_that_is_out_or_full_not_at_all():
    ranked = rank_upstreams(
        QUERY,
        [
            option("troubled", cost=0.0, quality=1.0, last="busy"),
            option("plain"),
            option("paused", out="paused"),
            option("full", load=1.0),
        ],
    )
    assert [each.name for each in ranked.able] == ["plain", "troubled"]
    assert [each.name for each in ranked.unable] == ["paused", "full"]


def test_brain_auto_may_take_any_model_and_a_name_only_its_own():
    offers = [Offer("a", "a"), Offer("b", "b")]
    assert wanted(replace(QUERY, model="brain/auto"), offers) == offers
    assert wanted(replace(QUERY, model="b"), offers) == offers[1:]


numbers = st.none() | st.floats(0, 1e6, allow_nan=False)


@given(
    st.lists(st.tuples(numbers, st.none() | st.floats(0, 1), st.floats(0, 2), st.booleans()), max_size=8),
    st.sampled_from(Mode),
)
def test_every_option_is_ranked_or_told_and_the_order_is_total(given_options, mode):
    options = [
        option(str(at), cost=cost, quality=quality, load=load, last="x" if last else None)
        for at, (cost, quality, load, last) in enumerate(given_options)
    ]
    ranked = rank_upstreams(replace(QUERY, mode=mode), options)
    assert sorted(each.name for each in (*ranked.able, *ranked.unable)) == sorted(each.name for each in options)
    assert ranked == rank_upstreams(replace(QUERY, mode=mode), options)


@pytest.mark.parametrize(
    ("prices", "path", "prompt", "completion", "cost"),
    [
        (Prices(1.0, 10.0), "/v1/chat/completions", 100, 50, 0.0006),
        (Prices(None, 10.0), "/v1/chat/completions", 100, 50, None),
        (Prices(1.0, None), "/v1/chat/completions", 100, 50, None),
        (Prices(1.0, None), "/v1/embeddings", 100, None, 0.0001),
        (Prices(0.0, 0.0), "/v1/chat/completions", None, None, 0.0),
        (Prices(1.0, 10.0), "/v1/chat/completions", None, 50, None),
        (Prices(0.0, 10.0), "/v1/chat/completions", None, 50, 0.0005),
        (by_ask(10.0), "/v1/embeddings", 100, None, 0.0),
        (by_ask(10.0), "/v1/messages/count_tokens", 100, None, 0.0),
        (by_ask(None), "/v1/chat/completions", 100, 50, None),
        (by_ask(None), "/v1/embeddings", 100, None, None),
        (by_ask(None), "/v1/messages/count_tokens", 100, None, None),
    ],
)
def test_a_cost_is_known_when_every_price_and_count_that_it_needs_is(prices, path, prompt, completion, cost):
    assert prices.cost_usd(path, prompt, completion) == cost
