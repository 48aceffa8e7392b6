"""ROUTING.md says of browser tabs what the code does."""

from pathlib import Path

from brain_coord.browser import agreement, comparisons, pipeline, product_check, spot_check, tab
from brain_coord.browser.plausible import SpeedRules

TEXT = (Path(__file__).parent.parent.parent / "ROUTING.md").read_text()
PLAIN = " ".join(TEXT.split())


def test_the_constants():
    lines = TEXT.split("<!-- table: tabs -->\n")[1].split("\n\n")[0].splitlines()
    assert [float(line.strip("|").split("|")[1]) for line in lines[2:]] == [
        product_check.ROUNDS,
        product_check.SPOT_ROWS,
        SpeedRules().most_ops_s,
        SpeedRules().most_times,
        agreement.AGREE_RMS,
        agreement.AGREE_TOP,
        spot_check.SHARE,
        spot_check.CLOSER_SHARE,
        spot_check.NEW_OUTCOMES,
        tab.FIRST_WAY_BACK_S,
        tab.LAST_WAY_BACK_S,
        comparisons.SUSPENDED_S,
        pipeline.MOST_MOVES,
    ]


def test_the_figures_of_the_sentences():
    assert f"Without one within {pipeline.MOVE_S:.0f} s the stream ends in one error" in PLAIN
