"""ROUTING.md says how nodes are measured, checked and set aside as the code does it."""

import re
from pathlib import Path

from brain_coord.fleet import health
from brain_coord.measure import benchmark, credit, density, similarity, slots, speed, window
from brain_coord.measure import rtt as round_trip
from brain_coord.probes import pace, questions

TEXT = (Path(__file__).parent.parent.parent / "ROUTING.md").read_text()
PLAIN = " ".join(TEXT.split())
SETTINGS = pace.ProbeSettings()


def table(name):
    lines = TEXT.split(f"<!-- table: {name} -->\n")[1].split("\n\n")[0].splitlines()
    return [float(line.strip("|").split("|")[1]) for line in lines[2:]]


def test_the_constants_of_the_checks():
    assert table("checks") == [
        SETTINGS.canary_s,
        SETTINGS.canary_jobs,
        pace.NEW_FACTOR,
        SETTINGS.shadow_share,
        SETTINGS.closer_share,
        pace.NEW_OUTCOMES,
        similarity.TOGETHER_WORDS,
        similarity.TOGETHER_SHARE,
        similarity.SAME_WORDS,
        similarity.COMPARED_WORDS,
    ]


def test_the_constants_of_fitness():
    assert table("health") == [
        health.FAULTS,
        health.CANARIES,
        health.COMPARED,
        health.MISMATCHES,
        health.BENCHMARKS,
        health.FIRST_PROBE_S,
        health.MAX_PROBE_S,
    ]
    assert health.PASSES == {"faults": 1, "benchmark": 1, "canaries": 2, "mismatches": 3}


def test_the_figures_of_the_sentences():
    for sentence in (
        f"round trip (at most {credit.MAX_RTT_S * 1000:.0f} ms) − {credit.HOP_S * 1000:.0f} ms",
        f"bytes of the request ÷ {credit.PROMPT_BYTES_PER_STEP:.0f}",
        f"min(prompt, tokens ÷ {1 / credit.PROMPT_SHARE:.0f})",
        f"`whole` is under {credit.MIN_WHOLE_S} s",
        f"last {window.SAMPLES} streams within {window.MAX_AGE_S / 3600:.0f} hours",
        f"bytes of text plus {speed.SILENT_TOKENS}",
        f"(beyond {density.TOLERANCE * 100:.0f} %, with at least {density.MIN_PEERS} peers",
        "{} tokens, or {} or {} where that takes less than a second".format(*benchmark.LENGTHS),
        f"last {round_trip.SAMPLES} pings",
        f"At first that is {slots.START} at most",
        f"the middle one of the last {slots.RECENT} kept less than a quarter",
        f"{slots.ANSWERS} answers came to their end at the limit",
        f"{slots.GOING_ON} times as many whenever so many jobs go on at once",
    ):
        assert sentence in PLAIN, sentence


def test_sums_are_asked_of_models_from_the_published_size_on():
    assert f"asked of models from {questions.SUMS_FROM_B} billion on" in PLAIN


def test_a_job_keeps_a_quarter_of_its_lone_speed_or_five_streams_that_reached_more_tell():
    assert (slots.BORNE_SHARE, slots.REACHED) == (0.25, 5)


def test_the_check_script_holds_itself_to_the_published_numbers_of_jobs():
    script = (Path(__file__).parent.parent.parent / "scripts" / "measure_check").read_text()
    limits = re.search(r"PUBLISHED_JOBS = (\{.*?\})", script).group(1)
    assert limits == "{1.0: 100, 0.0: 300}"
    assert "out within 100 jobs where its jobs can be compared, and within 300" in PLAIN
