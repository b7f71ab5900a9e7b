"""Which points of a long sweep are tried: all by ``make soak``, some of them by each run."""

import os
import random


def swept(points: range, one_in: int) -> range:
    """Return every point, or every so-many-th from a random one on; which is printed."""
    if "HOLDFAST_TEST_KILLS" in os.environ:
        return points
    first = random.SystemRandom().randrange(one_in)
    print(f"points {first}, {first + one_in}, ...")  # noqa: T201 - shown when the test fails
    return points[first::one_in]
