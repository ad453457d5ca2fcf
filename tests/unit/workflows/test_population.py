"""Which agents a population has."""

from __future__ import annotations

from pathlib import Path

import pytest

from exarl.agents.ppo import PPOConfig
from exarl.config import schema_of
from exarl.errors import ConfigError
from exarl.workflows.population import Member, members, table_of

PARAMETERS = schema_of(PPOConfig)


def population(sweep: str, n_seeds: int = 1, table: Path | None = None) -> list[Member]:
    return members(sweep, n_seeds, 5, PARAMETERS, table)


def test_a_grid_is_every_combination_with_every_seed() -> None:
    found = population("gamma=0.9,0.99;clip=0.1:0.2:2", n_seeds=2)
    assert [tuple(member.values()) for member in found] == [
        (seed, gamma, clip) for gamma in (0.9, 0.99) for clip in (0.1, 0.2) for seed in (5, 6)
    ]


def test_a_file_is_a_row_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text("learning_rate, gamma\n1e-3,0.9\n\n2e-3,0.8\n")
    first, second = {"learning_rate": 1e-3, "gamma": 0.9}, {"learning_rate": 2e-3, "gamma": 0.8}
    assert population(f"@{file}", n_seeds=2) == [
        {"seed": seed, **setting} for setting in (first, second) for seed in (5, 6)
    ]


def test_a_file_may_tell_the_seeds(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text(f"gamma,seed\n0.9,{2**63 - 1}\n0.8,3\n")
    found = population(f"@{file}")
    assert found == [{"seed": 2**63 - 1, "gamma": 0.9}, {"seed": 3, "gamma": 0.8}]
    with pytest.raises(ConfigError, match="n_seeds"):
        population(f"@{file}", n_seeds=2)


def test_the_table_of_a_run_is_a_file_of_settings(tmp_path: Path) -> None:
    found = population("gamma=0.1:0.9:7", n_seeds=2)
    table = tmp_path / "population.csv"
    table.write_text(table_of(found, [float("nan"), *range(13)]))
    again = population(f"@{table}")
    assert [member["seed"] for member in again] == [member["seed"] for member in found]
    for one, other in zip(again, found, strict=True):
        assert one == pytest.approx(other, rel=1e-8)


def test_a_run_goes_on_with_the_settings_it_began_with(tmp_path: Path) -> None:
    file, table = tmp_path / "points.csv", tmp_path / "population.csv"
    file.write_text("gamma\n0.9\n0.8\n")
    found = population(f"@{file}", 2, table)
    table.write_text(table_of(found, [1.0] * 4))
    assert population(f"@{file}", 2, table) == found
    file.write_text("gamma\n0.9\n0.7\n")
    with pytest.raises(ConfigError, match="not what this run began with"):
        population(f"@{file}", 2, table)
    file.unlink()
    assert population(f"@{file}", 2, table) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a line of different names"),
        ("gamma\n", "a line of different names"),
        ("gamma,gamma\n0.9,0.8\n", "a line of different names"),
        ("reward_mean\n3\n", "a line of different names"),
        ("gamma,clip\n0.9,0.2\n0.8\n", "row 3 of"),
        ("gamma\n0.9\nx\n", "row 3 of"),
        ("gamma\n0.9\n1.5\n", "gamma must be"),
        ("gamma\nnan\n", "gamma must be"),
        ("epochs\n4\n", "no number that can be swept"),
        ("gama\n0.9\n", "did you mean 'gamma'"),
        ("gamma,seed\n0.9,1.5\n", "row 2 of"),
        ("gamma,seed\n0.9,-1\n", "seed must be"),
        ("\0", "a line"),
    ],
)
def test_a_bad_file_is_one_clear_line(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason) as refused:
        population(f"@{file}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("sweep", ["@", "@nowhere.csv", "@/"])
def test_a_file_that_cannot_be_read(sweep: str) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        population(sweep)


@pytest.mark.parametrize("sweep", ["seed=1.5", "seed=nan", "seed=inf", "seed=-1"])
def test_seeds_are_whole(sweep: str) -> None:
    with pytest.raises(ConfigError, match="seed"):
        population(sweep)
    assert [member["seed"] for member in population("seed=7,3")] == [7, 3]
