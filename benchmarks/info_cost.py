"""What log_info costs per step: ``python -m benchmarks.info_cost``."""

from __future__ import annotations

import statistics
import sys
import timeit
from typing import Any

import numpy as np

from exarl.envs.info import InfoSums

INFO: dict[str, Any] = {
    "energy": -3.5,
    "temperature": np.float64(300.0),
    "stress": np.array([1.0, 2.0, 3.0]),
    **{f"n{i}": i for i in range(5)},
    "phase": "solid",
}
CASES = {
    "one number": ("energy",),
    "two numbers": ("energy", "temperature"),
    "an array of 3": ("stress",),
    "all (10 numbers)": ("all",),
}


def microseconds(names: tuple[str, ...], calls: int = 100, repeats: int = 2000) -> list[float]:
    """Per step, of each repeat: so short that some of them are not interrupted on a busy machine."""
    sums = InfoSums(names)
    sums.begin()
    times = timeit.repeat(lambda: sums.add(INFO), number=calls, repeat=repeats)
    return [1e6 * seconds / calls for seconds in times]


def main() -> None:
    """Print a table."""
    for title, names in CASES.items():
        found = microseconds(names)
        line = f"{title:18} {statistics.median(found):6.2f} us, best {min(found):.2f}\n"
        sys.stdout.write(line)


if __name__ == "__main__":
    main()
