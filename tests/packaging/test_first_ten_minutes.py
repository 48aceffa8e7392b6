"""A newcomer's first ten minutes, with the README's own commands."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_from_the_readme_to_an_answer_a_page_and_a_receipt_that_verifies(tmp_path: Path):
    tools = Path(sys.executable).parent.parent
    home = tmp_path / "a-home-directory-with-a-long-name" / "in-a-deep-place"
    home.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "scripts/first_ten_minutes", "--use", str(tools), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert list(told["steps"]) == [
        "brain-coord serve: the API answers",
        "a join token and an API key",
        "brain-node join: online and benchmarked",
        "the first answer",
        "the page shows the node",
        "the receipt verifies offline",
    ]
    assert told["total_s"] < 600
    assert list(home.glob("brain-first-*")) == []
