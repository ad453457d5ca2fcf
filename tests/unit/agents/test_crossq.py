"""CrossQ and XQC: one update against its definition, what follows batches, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from support.learning import continuous_spec, discrete_spec, make_agent, random_block
from support.team import Meeting, ThreadTeam, assert_same_state, train_together

from exarl import registry
from exarl.errors import ConfigError
from exarl.networks.mlp import MLP, MLPConfig
from exarl.types import Arrays

SPEC = continuous_spec((3,), 2)
QUICK: dict[str, Any] = {"batch_size": 8, "learning_starts": 0, "updates_per_step": 1 / 16}
"""One update for each block of 16 steps."""
AGENTS = ("CrossQ-v0", "XQC-v0")
agents = pytest.mark.parametrize("id", AGENTS)


def learner(id: str, **parameters: Any) -> Any:
    fixed = {"learning_rate_fraction": 0.0, **QUICK}
    return make_agent(SPEC, id=id, hidden=(6, 5), learner=True, **{**fixed, **parameters})


def params_of(agent: Any, part: str = "params") -> Arrays:
    arrays = getattr(agent.train_state, part)
    return {name: np.array(array, np.float64) for name, array in arrays.items()}


def drawn_by(agent: Any) -> list[Arrays]:
    drawn: list[Arrays] = []
    sample = agent.experience.sample

    def spy(*arguments: Any) -> Arrays:
        drawn.append(dict(sample(*arguments)))
        return drawn[-1]

    agent.experience.sample = spy
    return drawn


def normed(params: Arrays, at: str, x: np.ndarray, batch: bool) -> np.ndarray:
    running = at.replace("batch_norm", "running")
    mean, var = params[f"{running}/mean"], params[f"{running}/var"]
    if batch:
        mean, var = x.mean(0), x.var(0)
    return (x - mean) / np.sqrt(var + 1e-3) * params[f"{at}/scale"] + params[f"{at}/offset"]


def outputs(params: Arrays, name: str, x: np.ndarray, before: bool, batch: bool) -> np.ndarray:
    x = normed(params, f"{name}/batch_norm/0", x, batch)
    for layer in (0, 1):
        place = f"{name}/batch_norm/{layer + 1}"
        x = x @ params[f"{name}/{layer}/w"]
        if before:
            x = np.maximum(normed(params, place, x, batch), 0)
        else:
            x = normed(params, place, np.maximum(x + params[f"{name}/{layer}/b"], 0), batch)
    return x @ params[f"{name}/2/w"] + params[f"{name}/2/b"]


def sampled(made: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, log_std = made[:, :2], np.clip(made[:, 2:], -10, 2)
    actions = np.tanh(mean + np.exp(log_std) * noise)
    gaussian = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
    return actions, (gaussian - np.log(1 - actions**2)).sum(-1)


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def critic_loss(params: Arrays, target: Arrays, batch: Arrays, atoms: int) -> float:
    """Both critics' loss, in double precision; ``atoms`` 0: CrossQ's."""
    before, following = atoms > 0, batch["next_observation"].astype(float)
    actions, log_p = sampled(
        outputs(params, "policy", following, before, batch=False), batch["next_noise"].astype(float)
    )
    both = np.concatenate([batch["observation"], batch["action"]], 1), np.c_[following, actions]
    joint, count = np.concatenate(both), len(actions)
    made = [outputs(params, n, joint, before, batch=True)[:count] for n in ("q1", "q2")]
    ahead = [
        outputs({**params, **target}, n, joint, before, batch=True)[count:] for n in ("q1", "q2")
    ]
    bonus = -np.exp(params["log_alpha"]) * log_p
    reward, discount = batch["reward"].astype(float), batch["discount"].astype(float)
    if not atoms:
        goal = reward + discount * (np.minimum(*ahead)[:, 0] + bonus)
        return float(sum(0.5 * ((goal - q[:, 0]) ** 2).mean() for q in made))
    support, total = np.linspace(-5, 5, atoms), 0.0
    width = support[1] - support[0]
    for row in range(count):
        chances = [softmax(q[row]) for q in ahead]
        least = min(chances, key=lambda p: p @ support)
        mass = np.zeros(atoms)
        for value, chance in zip(support, least, strict=True):
            place = np.clip(reward[row] + discount[row] * (value + bonus[row]), -5, 5)
            mass += chance * np.maximum(1 - np.abs(place - support) / width, 0)
        total -= sum(float(mass @ np.log(softmax(q[row]))) for q in made) / count
    return total


@agents
def test_the_critics_loss_is_that_of_the_definition(id: str) -> None:
    agent = learner(id)
    drawn = drawn_by(agent)
    for seed in range(5):
        params, target = params_of(agent), params_of(agent, "target")
        metrics = agent.train(random_block(SPEC, seed))
        atoms = getattr(agent.config, "atoms", 0)
        one = {name: array[0] for name, array in drawn[-1].items()}
        expected = critic_loss(params, target, one, atoms)
        assert float(metrics["critic_loss"]) == pytest.approx(expected, rel=2e-3)
        assert bool(target) == (id == "XQC-v0")


@agents
def test_moments_follow_batches_and_no_optimiser_knows_them(id: str) -> None:
    agent = learner(id, policy_delay=3)
    optimised = agent.state()[0]
    assert not [n for n in optimised if n.startswith(("optimizer/", "target/")) and "running" in n]
    assert [n for n in optimised if n.startswith("params/policy/running/")]
    for update in range(6):
        before = params_of(agent)
        agent.train(random_block(SPEC, update))
        after = params_of(agent)
        changed = {n for n in after if not np.array_equal(before[n], after[n])}
        moved = {n.partition("/")[0] for n in changed if "running" in n}
        assert moved == ({"q1", "q2", "policy"} if update % 3 == 0 else {"q1", "q2"})
        trained = {n.partition("/")[0] for n in changed if n.endswith("/w")}
        assert trained == moved


def test_weights_of_xqc_have_length_one() -> None:
    agent = learner("XQC-v0")
    for seed in range(4):
        for name, array in params_of(agent).items():
            if name.endswith("/w"):
                np.testing.assert_allclose(np.linalg.norm(array, axis=0), 1, rtol=1e-5)
        agent.train(random_block(SPEC, seed))


def test_renormalisation_begins_after_its_updates() -> None:
    first, second = learner("CrossQ-v0", renorm_after=2), learner("CrossQ-v0")
    for update in range(4):
        block = random_block(SPEC, update)
        found = [float(agent.train(block)["critic_loss"]) for agent in (first, second)]
        assert (found[0] == found[1]) == (update < 2)


@pytest.mark.parametrize("every", [1, 2])
def test_learners_of_a_team_stay_equal(every: int) -> None:
    meeting, team = Meeting(2), []
    for index in range(2):
        team.append(make_agent(SPEC, id="CrossQ-v0", **{**QUICK, "updates_per_step": 0.125}))
        team[-1].join_team(ThreadTeam(meeting, index, every))
        team[-1].set_learner()
    before = params_of(team[0])
    for seed in range(3):
        nothing = every == 1 and not seed  # the first time one has no data
        other = None if nothing else random_block(SPEC, seed + 10)
        train_together(team, [random_block(SPEC, seed), other])
        assert_same_state(team)
    after = params_of(team[0])
    assert all(np.abs(after[n] - before[n]).max() > 0 for n in after if "running" in n)


def test_what_cannot_learn_is_refused() -> None:
    for id, batch_norm, message in (
        ("SAC-v0", "after", "SAC keeps no running moments"),
        ("CrossQ-v0", "none", "CrossQ learns by the statistics of batches"),
    ):
        kind = registry.agents.load(id)
        network: Any = partial(MLP, MLPConfig((4,), batch_norm=batch_norm), SPEC.observation)
        with pytest.raises(ConfigError, match=message):
            kind(SPEC, kind.Config(), network, 0)
    with pytest.raises(ConfigError, match="no target network: leave tau out"):
        learner("CrossQ-v0", tau=0.1)
    for id in AGENTS:
        with pytest.raises(ConfigError, match=f"{id} needs"):
            make_agent(discrete_spec(), id=id)
