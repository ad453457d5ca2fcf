"""Times and lists of counts as users write them."""

from __future__ import annotations

import pytest

from exarl.cli.quantities import series, take_counts, take_number, take_time
from exarl.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("30s", 30.0), ("20ms", 0.02), ("5us", 5e-6), ("2h", 7200.0), ("1.5min", 90.0),
     ("1e-3", 1e-3), ("1d", 86400.0)],
)  # fmt: skip
def test_times(text: str, seconds: float) -> None:
    words = ["--a", "1", "--t", text]
    assert take_time(words, "t") == pytest.approx(seconds)
    assert words == ["--a", "1"]


@pytest.mark.parametrize("text", ["-1", "30x", "s", "nan", "inf", "1h30", "1e400", "--"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--t .*(such as|needs a value)"):
        take_time([f"--t={text}" if text != "--" else "--t"], "t")


@pytest.mark.parametrize(
    ("text", "counts"),
    [("5", (5,)), ("4,1,4", (1, 4)), ("1-12", (1, 2, 5, 10, 12)), ("3,7-20", (3, 7, 10, 20))],
)
def test_counts(text: str, counts: tuple[int, ...]) -> None:
    assert take_counts([f"--n={text}"], "n") == counts


@pytest.mark.parametrize("text", ["0", "1-", "-5", "a", "1,,2", "1.5", "9999999"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ConfigError, match="--n is a count"):
        take_counts([f"--n={text}"], "n")


def test_a_series_goes_from_end_to_end() -> None:
    assert series(1, 100_000)[-4:] == [10_000, 20_000, 50_000, 100_000]
    assert series(3, 3) == [3]


@pytest.mark.parametrize("text", ["1.5", "nan", "x"])
def test_a_number_has_limits(text: str) -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        take_number([f"--x={text}"], "x", 0, 1)
    assert take_number(["--x", "0.5"], "x", 0, 1) == 0.5
    assert take_number([], "x") is None
