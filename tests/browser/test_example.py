"""The client example of the README, over three tabs."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.support.tabs import lent_tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[2] / "scripts" / "examples" / "matmul.py"


async def test_the_example_multiplies_two_matrices_through_three_tabs_and_gets_numpys_answer(place):
    async with (
        lent_tab(place.browser, place.url),
        lent_tab(place.browser, place.url),
        lent_tab(place.browser, place.url),
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(EXAMPLE),
            place.url,
            env={**os.environ, "BRAIN_API_KEY": place.key},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert "on 3 tabs" in output.decode()
    assert "the same as NumPy's product: True" in output.decode()
