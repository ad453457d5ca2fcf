"""What the agents minimise, against RLax and by hand; and what their updates move."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
import rlax
from support.learning import (
    continuous_spec,
    discrete_spec,
    make_agent,
    random_block,
    through_storage,
)
from support.team import Meeting, ThreadTeam, assert_same_state, train_together

from exarl.agents.algorithm import group
from exarl.agents.algorithm import part as part_of
from exarl.types import Arrays, Block, EnvSpec, concatenate

pytestmark = pytest.mark.filterwarnings("ignore:Rlax softmax")

SEEDS = range(3)
DISCRETE, CONTINUOUS = discrete_spec((3,), 4), continuous_spec((3,), 2)
REPLAY = {"batch_size": 8, "learning_starts": 0, "updates_per_step": 0.125}
ONE = {**REPLAY, "updates_per_step": 1 / 16}  # one update a block


def mlp(params: Arrays, name: str, *inputs: np.ndarray) -> np.ndarray:
    """The network again, in double precision."""
    own = {n.removeprefix(f"{name}/"): a.astype(float) for n, a in params.items()}
    x = np.concatenate(inputs, 1).astype(float)
    return np.maximum(x @ own["0/w"] + own["0/b"], 0) @ own["1/w"] + own["1/b"]


def params_of(agent: Any, part: str = "params") -> Arrays:
    return {name: np.asarray(array) for name, array in getattr(agent.train_state, part).items()}


def shaken(params: Arrays, seed: int) -> Arrays:
    """Other weights of the same form."""
    rng = np.random.default_rng(seed)
    return {n: a + rng.normal(scale=0.5, size=a.shape).astype("f4") for n, a in params.items()}


def block_for(agent: Any, seed: int, **options: Any) -> Block:
    """A random block with all that the agent wants recorded."""
    block = random_block(agent.spec, seed, **options)
    rng = np.random.default_rng(seed + 50)
    shapes = {n: (*block.rewards.shape, *s.shape) for n, s in agent.recorded.items()}
    block.recorded.update({n: rng.normal(-1, 0.3, s).astype("f4") for n, s in shapes.items()})
    return block


def transitions(spec: EnvSpec, seed: int, size: int = 16) -> Arrays:
    rng = np.random.default_rng(seed)
    batch = {
        "observation": rng.normal(size=(size, 3)),
        "next_observation": rng.normal(size=(size, 3)),
        "reward": rng.normal(size=size),
        "discount": 0.97 * (rng.random(size) > 0.3),
        "noise": rng.normal(size=(size, 2)),
        "next_noise": rng.normal(size=(size, 2)),
    }
    return {name: array.astype("f4") for name, array in batch.items()}


# -- policies and values --------------------------------------------------------------------------


def policy_batch(agent: Any, seed: int, size: int = 64) -> Arrays:
    rng = np.random.default_rng(seed)
    batch = {
        "observation": rng.normal(size=(size, 3)),
        "advantage": rng.normal(size=size),
        "log_prob": rng.normal(-1.4, 0.3, size),
        "value": rng.normal(size=size),
        "target": rng.normal(size=size),
    }
    actions = rng.integers(4, size=size) if agent.algorithm.discrete else rng.normal(size=(size, 2))
    return {**{n: a.astype("f4") for n, a in batch.items()}, "action": actions}


def on_policy(id: str, seed: int, spec: EnvSpec = DISCRETE, **parameters: Any) -> tuple[Any, ...]:
    """An agent, other weights of it, a batch, and its losses of it."""
    agent = make_agent(spec, id=id, seed=seed, normalize_advantages=False, **parameters)
    params, batch = shaken(agent._first, seed), policy_batch(agent, seed)
    loss, metrics = agent.algorithm.loss(jax.numpy, agent.hyper, params, None, batch)
    return params, batch, float(loss), {name: float(value) for name, value in metrics.items()}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("clip", [0.1, 0.3])
def test_ppo_minimises_the_clipped_surrogate(seed: int, clip: float) -> None:
    params, batch, _, metrics = on_policy("PPO-v0", seed, clip=clip)
    logits = mlp(params, "policy", batch["observation"])
    log_prob = rlax.softmax().logprob(batch["action"], logits)
    ratio = np.exp(log_prob - batch["log_prob"])
    expected = rlax.clipped_surrogate_pg_loss(ratio, batch["advantage"], clip)
    assert metrics["policy_loss"] == pytest.approx(float(expected), rel=1e-4, abs=1e-6)
    assert 0 < metrics["clip_fraction"] == pytest.approx(np.mean(np.abs(ratio - 1) > clip))


@pytest.mark.parametrize("seed", SEEDS)
def test_a2c_minimises_the_policy_gradient_loss(seed: int) -> None:
    params, batch, _, metrics = on_policy("A2C-v0", seed)
    logits = mlp(params, "policy", batch["observation"]).astype("f4")
    weights = np.ones(len(logits), "f4")
    expected = rlax.policy_gradient_loss(logits, batch["action"], batch["advantage"], weights)
    assert metrics["policy_loss"] == pytest.approx(float(expected), rel=1e-4, abs=1e-6)
    entropy = -float(rlax.entropy_loss(logits, weights))
    assert metrics["entropy"] == pytest.approx(entropy, rel=1e-4)


@pytest.mark.parametrize("id", ["A2C-v0", "PPO-v0"])
@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_the_whole_loss_is_the_weighted_sum_of_its_terms(id: str, spec: EnvSpec) -> None:
    params, batch, loss, m = on_policy(id, 1, spec, value_scale=0.7, entropy_scale=0.3)
    values = mlp(params, "value", batch["observation"])[:, 0]
    assert m["value_loss"] == pytest.approx(
        0.5 * np.mean((values - batch["target"]) ** 2), rel=1e-4
    )
    assert loss == pytest.approx(
        m["policy_loss"] + 0.7 * m["value_loss"] - 0.3 * m["entropy"], abs=1e-5
    )


@pytest.mark.parametrize("id", ["A2C-v0", "PPO-v0"])
def test_the_value_is_the_last_output_of_a_shared_network(id: str) -> None:
    params, batch, _, metrics = on_policy(id, 1, share_network=True)
    values = mlp(params, "policy", batch["observation"])[:, -1]
    expected = 0.5 * np.mean((values - batch["target"]) ** 2)
    assert metrics["value_loss"] == pytest.approx(expected, rel=1e-4)


def test_a_value_moves_no_farther_than_its_clip() -> None:
    params, batch, _, metrics = on_policy("PPO-v0", 2, value_clip=0.2)
    values = mlp(params, "value", batch["observation"])[:, 0]
    moved = np.clip(values, batch["value"] - 0.2, batch["value"] + 0.2)
    assert np.abs(moved - values).max() > 0.1
    expected = 0.5 * np.mean((moved - batch["target"]) ** 2)
    assert metrics["value_loss"] == pytest.approx(expected, rel=1e-4)


def test_advantages_are_normalised_where_asked() -> None:
    batch = {"advantage": np.random.default_rng(0).normal(5, 3, 100)}
    agents = [
        make_agent(DISCRETE, id="PPO-v0", normalize_advantages=asked) for asked in (True, False)
    ]
    whitened, plain = (agent.algorithm.advantages(np, batch) for agent in agents)
    np.testing.assert_allclose(
        whitened, (batch["advantage"] - batch["advantage"].mean()) / batch["advantage"].std()
    )
    assert plain is batch["advantage"]


def test_passes_stop_where_the_policy_has_moved_too_far() -> None:
    """The first update of a block always happens, since the policy has not moved yet."""

    def train(**parameters: Any) -> list[Arrays]:
        own = {"minibatches": 1, "optimizer": "sgd", "learning_rate": 0.5, **parameters}
        agent = make_agent(DISCRETE, id="PPO-v0", learner=True, **own)
        ends = []
        for seed in (0, 1):
            metrics = agent.train(block_for(agent, seed))
            assert np.isfinite(list(metrics.values())).all()
            ends.append(params_of(agent))
        return ends

    once, halted = train(epochs=1), train(epochs=6, target_kl=1e-7)
    for alone, stopped in zip(once, halted, strict=True):  # the second block begins afresh
        for name, array in alone.items():
            np.testing.assert_allclose(stopped[name], array, rtol=1e-4, atol=1e-5)
    free = train(epochs=6, target_kl=1e6)
    assert any(np.abs(free[0][n] - a).max() > 0.02 for n, a in once[0].items())


# -- critics --------------------------------------------------------------------------------------


def least(params: Arrays, names: tuple[str, ...], seen: np.ndarray, actions: np.ndarray) -> Any:
    return np.min([mlp(params, name, seen, actions)[:, 0] for name in names], 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_ddpg_targets_by_hand(seed: int) -> None:
    agent = make_agent(CONTINUOUS, id="DDPG-v0")
    target, batch = shaken(agent._first, seed), transitions(CONTINUOUS, seed)
    seen = batch["next_observation"]
    value = mlp(target, "q1", seen, np.tanh(mlp(target, "policy", seen)))[:, 0]
    expected = batch["reward"] + batch["discount"] * value
    np.testing.assert_allclose(
        agent.algorithm.targets(np, agent.hyper, target, batch), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_td3_targets_take_the_lesser_critic_of_a_smoothed_action(seed: int) -> None:
    agent = make_agent(CONTINUOUS, id="TD3-v0", target_noise=0.4, target_noise_clip=0.3)
    target, batch = shaken(agent._first, seed), transitions(CONTINUOUS, seed)
    seen = batch["next_observation"]
    noise = np.clip(0.4 * batch["noise"], -0.3, 0.3)
    assert 0 < (np.abs(noise) < 0.3).mean() < 1
    actions = np.clip(np.tanh(mlp(target, "policy", seen)) + noise, -1, 1)
    value = least(target, ("q1", "q2"), seen, actions)
    assert not np.allclose(value, mlp(target, "q1", seen, actions)[:, 0])
    expected = batch["reward"] + batch["discount"] * value
    np.testing.assert_allclose(
        agent.algorithm.targets(np, agent.hyper, target, batch), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_continuous_sac_targets_by_hand(seed: int) -> None:
    agent = make_agent(CONTINUOUS, id="SAC-v0", alpha=0.3)
    params, target = shaken(agent._first, seed), shaken(agent._first, seed + 10)
    batch = transitions(CONTINUOUS, seed)
    seen, noise = batch["next_observation"], batch["next_noise"].astype(float)
    mean, log_std = np.split(mlp(params, "policy", seen), 2, axis=1)
    log_std = np.clip(log_std, -10, 2)
    actions = np.tanh(mean + np.exp(log_std) * noise)
    log_p = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - np.log(1 - actions**2)
    value = least(target, ("q1", "q2"), seen, actions)
    soft = value - np.exp(params["log_alpha"]) * log_p.sum(1)
    ours = agent.algorithm.targets(np, params, target, batch)
    np.testing.assert_allclose(ours, batch["reward"] + batch["discount"] * soft, rtol=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_discrete_sac_targets_by_hand(seed: int) -> None:
    agent = make_agent(DISCRETE, id="SAC-v0", alpha=0.3)
    params, target = shaken(agent._first, seed), shaken(agent._first, seed + 10)
    batch = transitions(DISCRETE, seed)
    seen = batch["next_observation"]
    weights = np.exp(mlp(params, "policy", seen))
    p = weights / weights.sum(1, keepdims=True)
    q = np.minimum(mlp(target, "q1", seen), mlp(target, "q2", seen))
    soft = (p * (q - np.exp(params["log_alpha"]) * np.log(p))).sum(1)
    ours = agent.algorithm.targets(np, params, target, batch)
    expected = batch["reward"] + batch["discount"] * soft
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)


def test_every_part_of_sac_follows_its_own_loss_alone() -> None:
    """One step of plain descent: critics towards the targets, the policy up the lesser critic."""
    parameters = {"optimizer": "sgd", "learning_rate": 0.1, "learn_alpha": False, "alpha": 0.2}
    agent = make_agent(CONTINUOUS, id="SAC-v0", learner=True, **ONE, **parameters)
    drawn: list[Arrays] = []
    sample = agent.experience.sample
    agent.experience.sample = lambda *made: drawn.append(sample(*made)) or drawn[-1]
    before = params_of(agent)
    agent.train(block_for(agent, 0))
    batch = {name: array[0] for name, array in drawn[0].items()}
    target = {n: a for n, a in before.items() if n[0] == "q"}
    targets = agent.algorithm.targets(np, before, target, batch)

    def critics(params: Any) -> Any:
        values = [
            agent.algorithm.networks[n].apply(
                jax.numpy, part_of(params, n), batch["observation"], batch["action"]
            )[:, 0]
            for n in ("q1", "q2")
        ]
        return sum(0.5 * ((q - targets) ** 2).mean() for q in values)

    def policy(params: Any) -> Any:
        xp, seen = jax.numpy, batch["observation"]
        actions, log_p = agent.algorithm.policy(xp, params, seen, batch["noise"])
        values = [
            agent.algorithm.networks[n].apply(xp, part_of(before, n), seen, actions)[:, 0]
            for n in ("q1", "q2")
        ]
        return (0.2 * log_p - xp.minimum(*values)).mean()

    slopes = {n[0]: jax.jit(jax.grad(loss))(before) for n, loss in (("q", critics), ("p", policy))}
    for name, array in params_of(agent).items():
        if name != "log_alpha":
            expected = before[name] - 0.1 * slopes[name[0]][name]
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5, err_msg=name)
    assert params_of(agent)["log_alpha"] == before["log_alpha"]


@pytest.mark.parametrize(
    ("spec", "goal", "sign"), [(CONTINUOUS, 30.0, 1), (DISCRETE, None, -1)], ids=["below", "above"]
)
def test_the_temperature_rises_below_the_target_entropy_and_falls_above(
    spec: EnvSpec, goal: float | None, sign: int
) -> None:
    """By plain descent, as much as the entropy is off; a fresh policy is near the largest."""
    parameters = {"optimizer": "sgd", "learning_rate": 0.01, "target_entropy": goal}
    agent = make_agent(spec, id="SAC-v0", learner=True, **ONE, **parameters)
    before, metrics = params_of(agent)["log_alpha"], agent.train(block_for(agent, 0))
    change = params_of(agent)["log_alpha"] - before
    goal = 0.5 * np.log(4) if goal is None else goal
    assert sign * change > 1e-3
    assert change == pytest.approx(0.01 * (goal - float(metrics["entropy"])), rel=1e-3)


def moved(one: Arrays, other: Arrays, part: str) -> bool:
    """Whether the weights of a network differ."""
    return any(not np.array_equal(a, other[n]) for n, a in one.items() if n.startswith(part))


@pytest.mark.parametrize("delay", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_td3_moves_its_policy_and_targets_every_so_many_updates(delay: int) -> None:
    agent = make_agent(CONTINUOUS, id="TD3-v0", learner=True, policy_delay=delay, **ONE)
    block, due = block_for(agent, 0), []
    for _ in range(6):
        before, target = params_of(agent), params_of(agent, "target")
        metrics = agent.train(block)
        assert metrics["updates"] == 1
        after, behind = params_of(agent), params_of(agent, "target")
        assert moved(before, after, "q1")
        assert moved(before, after, "q2")
        due.append(moved(before, after, "policy"))
        assert ("policy_loss" in metrics) is due[-1]  # NaN would spoil the means of a run
        assert np.isfinite(list(metrics.values())).all()
        assert {moved(target, behind, part) for part in ("q1", "q2", "policy")} == {due[-1]}
    assert sum(due) == 6 // delay
    assert {b - a for a, b in zip(np.flatnonzero(due), np.flatnonzero(due)[1:], strict=False)} <= {
        delay
    }


def test_td3_copies_its_targets_at_their_interval_whatever_the_delay() -> None:
    parameters = {"tau": 0.0, "target_update_interval": 3, "policy_delay": 2}
    agent = make_agent(CONTINUOUS, id="TD3-v0", learner=True, **ONE, **parameters)
    block = block_for(agent, 0)
    for update in range(1, 7):
        agent.train(block)
        params, target = params_of(agent), params_of(agent, "target")
        behind = max(np.abs(params[name] - array).max() for name, array in target.items())
        assert bool(behind < 1e-6) is (update % 3 == 0), update


@pytest.mark.parametrize("id", ["DQN-v0", "SAC-v0"])
def test_errors_become_priorities_only_where_the_replay_has_some(id: str) -> None:
    for scale in (0.0, 0.6):
        agent = make_agent(DISCRETE, id=id, priority_scale=scale, learner=True, **ONE)
        agent.train(block_for(agent, 0))
        assert ("replay/priorities" in agent.state()[0]) is bool(scale)
        rows = transitions(DISCRETE, 1) | {"action": np.zeros(16, int)}
        rows |= {"weight": np.ones(16, "f4")} if scale else {}
        (loss, *_) = agent.algorithm.losses
        _, metrics = loss.value(np, agent.hyper, agent.train_state.params, agent.train_state, rows)
        assert ("priority" in metrics) is bool(scale)


def test_the_priority_of_a_sequence_is_its_mean_error_over_time() -> None:
    agent = make_agent(DISCRETE, priority_scale=0.6, learner=True, units=4, **ONE)
    steps, count = 5, 3
    block = block_for(agent, 0, steps=steps, width=count)
    rows = agent.algorithm.rows(np, agent.hyper, block) | {"weight": np.ones(count, "f4")}
    state = agent.train_state
    _, metrics = agent.algorithm.loss(np, agent.hyper, state.params, state, rows)
    assert np.shape(metrics["priority"]) == (count,)
    np.testing.assert_allclose(np.mean(metrics["priority"]), metrics["td_error"], rtol=1e-5)


def test_a_block_without_updates_still_takes_the_errors_of_the_last_one() -> None:
    agent = make_agent(DISCRETE, priority_scale=0.6, learner=True, **ONE)
    agent.train(block_for(agent, 0))
    agent.experience.add(agent.algorithm.rows(np, agent.hyper, block_for(agent, 1)))
    found = agent.experience.replay.state()[
        "priorities"
    ]  # ``state`` of the experience adds them too
    assert len(set(found[:16])) > 1


@pytest.mark.parametrize(("id", "spec"), [("DQN-v0", DISCRETE), ("TD3-v0", CONTINUOUS)])
def test_every_update_is_counted(id: str, spec: EnvSpec) -> None:
    agent = make_agent(spec, id=id, learner=True, **REPLAY)
    made = [int(agent.train(block_for(agent, seed))["updates"]) for seed in range(3)]
    assert sum(made) > 3
    assert int(agent.state()[0]["updates"]) == sum(made) == agent.state()[1]["updates"]


@pytest.mark.parametrize(("id", "spec"), [("DQN-v0", DISCRETE), ("TD3-v0", CONTINUOUS)])
def test_priorities_follow_the_errors_and_are_kept(id: str, spec: EnvSpec) -> None:
    make = partial(make_agent, spec, id=id, priority_scale=0.6, learner=True, **ONE)
    agent, again = make(), make(seed=3)
    agent.experience.add(agent.algorithm.rows(np, agent.hyper, block_for(agent, 1)))
    assert set(agent.experience.state()["priorities"]) == {1.0}
    metrics = agent.train(block_for(agent, 0))
    priorities = agent.state()[0]["replay/priorities"]
    assert 1 < len(set(priorities)) <= 1 + metrics["updates"] * 8
    assert "priority" not in metrics
    again.restore(*through_storage(*agent.state()))
    np.testing.assert_array_equal(again.experience.state()["priorities"], priorities)
    assert agent.train(block_for(agent, 2)) == again.train(block_for(agent, 2))


def test_the_priority_of_a_transition_is_its_error() -> None:
    agent = make_agent(CONTINUOUS, id="TD3-v0", priority_scale=0.6, learner=True, **ONE)
    drawn: list[Arrays] = []
    sample = agent.experience.sample
    agent.experience.sample = lambda *made: drawn.append(dict(sample(*made))) or dict(drawn[-1])
    before = params_of(agent)
    agent.train(block_for(agent, 0))
    batch = {name: array[0] for name, array in drawn[0].items()}
    values = mlp(before, "q1", batch["observation"], batch["action"])[:, 0]
    errors = np.abs(agent.algorithm.targets(np, agent.hyper, before, batch) - values)
    last = dict(zip(batch["index"].tolist(), errors, strict=True))  # of duplicates the last wins
    kept = agent.state()[0]["replay/priorities"][list(last)]
    np.testing.assert_allclose(kept, (np.array([*last.values()]) + 1e-6) ** 0.6, rtol=1e-3)


@pytest.mark.parametrize(
    ("id", "spec", "trained"),
    [
        ("DDPG-v0", CONTINUOUS, ("q1",)),
        ("TD3-v0", CONTINUOUS, ("q1", "q2")),
        ("SAC-v0", CONTINUOUS, ("q1", "q2")),
        ("SAC-v0", DISCRETE, ("q1", "q2")),
    ],
)
def test_importance_weights_are_for_the_losses_of_values(
    id: str, spec: EnvSpec, trained: tuple[str, ...]
) -> None:
    agent = make_agent(spec, id=id, priority_scale=0.6, learner=True, **ONE)
    algorithm, state = agent.algorithm, agent.train_state
    rows, rng = algorithm.rows(np, agent.hyper, block_for(agent, 0)), np.random.default_rng(0)
    rows |= {name: array[0] for name, array in algorithm.draws(rng, 1, 16).items()}
    weighted = {**rows, "weight": rng.uniform(0.1, 1, 16).astype(np.float32)}
    for loss in algorithm.losses:
        found, plain = (
            jax.grad(
                lambda own, batch=batch, loss=loss: loss.value(
                    jax.numpy, agent.hyper, {**state.params, **own}, state, batch
                )[0]
            )(group(state.params, loss.trains))
            for batch in (weighted, rows)
        )
        alike = [np.array_equal(found[name], plain[name]) for name in plain]
        assert all(alike) is (loss.trains != trained), loss.trains
        assert alike


# -- teams ----------------------------------------------------------------------------------------

TEAMS: dict[str, tuple[str, EnvSpec, dict[str, Any]]] = {
    "TD3": ("TD3-v0", CONTINUOUS, REPLAY),
    "SAC": ("SAC-v0", CONTINUOUS, {**REPLAY, "normalize_observations": True, "reset_interval": 3}),
    "A2C": ("A2C-v0", DISCRETE, {"normalize_observations": True, "normalize_rewards": True}),
    "PPO": ("PPO-v0", DISCRETE, {"epochs": 2, "minibatches": 2}),
    "PPO that halts": ("PPO-v0", CONTINUOUS, {"epochs": 2, "target_kl": 1e-6}),
}


def make_team(name: str, every: int = 1, **parameters: Any) -> list[Any]:
    id, spec, own = TEAMS[name]
    agents, meeting = [], Meeting(2)
    for index in range(2):
        agents.append(make_agent(spec, id=id, **{**own, **parameters}))
        agents[-1].join_team(ThreadTeam(meeting, index, every))
        agents[-1].set_learner()
    return agents


@pytest.mark.parametrize(
    ("name", "every"),
    [
        ("TD3", 1),
        pytest.param("SAC", 1, marks=pytest.mark.slow),  # TD3 averages so, SAC every second time
        pytest.param("A2C", 1, marks=pytest.mark.slow),  # compared with one learner below
        ("PPO", 1),
        ("SAC", 2),
        ("PPO that halts", 2),
    ],
)
def test_a_team_stays_in_step_also_when_one_has_no_block(name: str, every: int) -> None:
    agents = make_team(name, every)
    before = agents[0].get_weights()
    for seed, absent in ((0, None), (10, 1), (20, 0), (30, None)):
        blocks: list[Any] = [block_for(a, seed + i) for i, a in enumerate(agents)]
        if absent is not None:
            blocks[absent] = None
        metrics = train_together(agents, blocks)
        assert metrics[0]["updates"] == metrics[1]["updates"] > 0
        assert_same_state(agents)
        np.testing.assert_array_equal(*(agent.get_weights() for agent in agents))
        assert not np.array_equal(before, agents[0].get_weights())
        before = agents[0].get_weights()


def test_two_learners_learn_what_one_learns_from_both_blocks() -> None:
    agents = make_team("A2C")
    alone = make_agent(DISCRETE, id="A2C-v0", learner=True, **TEAMS["A2C"][2])
    for seed in (0, 10):
        blocks = [block_for(agent, seed + i) for i, agent in enumerate(agents)]
        train_together(agents, blocks)
        alone.train(concatenate(blocks))
    for name, array in params_of(alone).items():
        np.testing.assert_allclose(params_of(agents[1])[name], array, rtol=1e-3, atol=1e-5)
    for name, array in alone.train_state.norm.items():
        np.testing.assert_allclose(agents[1].train_state.norm[name], array, rtol=1e-5, atol=1e-6)
