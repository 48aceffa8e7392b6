"""What holds for every test: property tests have no time limit of their own, and CI tries the same examples each time."""

import os

from hypothesis import settings

# A loaded machine is no fault of the code. And what lands must not depend on chance: new examples are for whoever works.
settings.register_profile("unhurried", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhurried")
