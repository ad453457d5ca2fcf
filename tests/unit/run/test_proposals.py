"""Settings that suit what was measured; what the user has chosen stays."""

from __future__ import annotations

from typing import Any

import pytest

from exarl.envs.measured import Measured
from exarl.run.configure import configure
from exarl.run.proposals import propose


def settings(
    *flags: str,
    cores: int = 1,
    limit: int | None = 200,
    value: float = 10.0,
    step_s: float = 1e-5,
    steps: int = 2000,
    episode: float | None = 50.0,
) -> dict[str, Any]:
    """What is proposed; an environment in which nothing needs to be changed, unless said."""
    found = Measured(steps, step_s, step_s, step_s, step_s, 1.0, value, episode, False)
    proposal = propose(found, configure(None, ["--env", "ExaFaulty-v0", *flags]), limit, cores)
    assert len(proposal.reasons) == len(proposal.settings)
    words = proposal.words()
    configure(None, ["--env", "ExaFaulty-v0", *flags, *words[: 2 * len(proposal.settings)]])
    return {**proposal.settings, **({"procs": proposal.procs} if proposal.procs else {})}


def test_the_defaults_stay_where_they_suit() -> None:
    assert settings() == {}
    assert settings(cores=64) == {}


@pytest.mark.parametrize(
    ("value", "scale"),
    [
        (12_000.0, 0.005),
        (2900.0, None),
        (450.0, None),
        (1.0, None),
        (0.0025, 20_000.0),
        (0.0, None),
    ],
)
def test_values_are_brought_to_where_agents_learn_well(value: float, scale: float | None) -> None:
    expected = {} if scale is None else {"reward_scale": scale}
    assert settings(value=value) == expected
    assert scale is None or 30 < scale * value <= 101


def test_but_not_where_the_agent_or_the_user_sees_to_it() -> None:
    assert settings("--agent", "PPO-v0", value=1e4) == {}  # which normalises rewards
    for chosen in (["--reward_clip", "1"], ["--reward_scale", "2"], ["--normalize_rewards"]):
        assert settings(*chosen, value=1e4) == {}
    assert settings("--agent", "Random-v0", value=1e4) == {}
    assert settings(value=1e4, steps=20, episode=None) == {}  # too little was seen


def test_episodes_without_an_end_are_cut() -> None:
    assert settings(limit=None, episode=None) == {"n_steps": 1000}
    assert settings(limit=None) == {}
    assert settings(limit=None, episode=None, steps=30) == {}
    assert settings("--n_steps", "70", limit=None, episode=None) == {}


def test_slow_steps() -> None:
    assert settings(step_s=2.0) == {"block_steps": 5}
    assert settings(step_s=60.0, steps=3, episode=None) == {"block_steps": 1}
    assert settings("--block_steps", "16", step_s=2.0) == {}
    assert settings("--envs_per_actor", "2", step_s=2.0) == {"block_steps": 2}
    assert settings("--agent", "PPO-v0", step_s=2.0) == {}


def test_actors_for_slow_steps_and_many_cores() -> None:
    assert settings(step_s=0.005, cores=16) == {"workflow": "async", "procs": 6}
    assert settings(step_s=0.1, cores=16) == {"workflow": "async", "procs": 16}
    assert settings(step_s=0.1, cores=2) == {}
    assert settings("--workflow", "rma", step_s=0.1, cores=16) == {}
    assert settings("--process_per_env", "2", step_s=0.1, cores=16) == {}
