"""Which agent learns in which kind of environment, with settings that keep a run to a second."""

from __future__ import annotations

from typing import Any

OFF_POLICY: dict[str, Any] = {"learning_starts": 40, "batch_size": 8, "updates_per_step": 0.1}
ENSEMBLE: dict[str, Any] = {"critics": 4, "dropout": 0.1, "policy_delay": 2, "reset_interval": 5}
DREAMS: dict[str, Any] = {"model_hidden": [8], "model_batch_size": 8, "horizon": 2}
PPO: dict[str, Any] = {"epochs": 2, "minibatches": 2}

CASES: dict[str, dict[str, Any]] = {
    "DQN, discrete": {"agent": "DQN-v0", **OFF_POLICY},
    "DQN, box": {"agent": "DQN-v0", "env": "Pendulum-v1", "n_step": 12, **OFF_POLICY},
    "DQN, prioritised": {"agent": "DQN-v0", "priority_scale": 0.6, **OFF_POLICY},
    "DQN, LSTM": {"agent": "DQN-v0", "model_type": "LSTM", "burn_in": 2, **OFF_POLICY},
    "DDPG": {"agent": "DDPG-v0", "env": "Pendulum-v1", "exploration": "ou", **OFF_POLICY},
    "TD3": {"agent": "TD3-v0", "env": "Pendulum-v1", "priority_scale": 0.6, **OFF_POLICY},
    "SAC, discrete": {"agent": "SAC-v0", **OFF_POLICY},
    "SAC, box": {"agent": "SAC-v0", "env": "Pendulum-v1", "n_step": 3, **OFF_POLICY},
    "SAC, ensemble": {"agent": "SAC-v0", "env": "Pendulum-v1", **ENSEMBLE, **OFF_POLICY},
    "TQC": {"agent": "TQC-v0", "env": "Pendulum-v1", "priority_scale": 0.6, **OFF_POLICY},
    "QRDQN": {"agent": "QRDQN-v0", "quantiles": 5, "n_step": 3, **OFF_POLICY},
    "CrossQ": {"agent": "CrossQ-v0", "env": "Pendulum-v1", **OFF_POLICY},
    "XQC": {"agent": "XQC-v0", "env": "Pendulum-v1", "priority_scale": 0.6, **OFF_POLICY},
    "MBPO": {"agent": "MBPO-v0", "env": "Pendulum-v1", **OFF_POLICY, **DREAMS},
    "A2C, discrete": {"agent": "A2C-v0"},
    "A2C, box": {"agent": "A2C-v0", "env": "Pendulum-v1", "normalize_observations": True},
    "A3C, LSTM": {"agent": "A3C-v0", "model_type": "LSTM"},
    "PPO, discrete": {"agent": "PPO-v0", "frame_stack": 3, **PPO},
    "PPO, box": {"agent": "PPO-v0", "env": "Pendulum-v1", "normalize_rewards": True, **PPO},
    "PPO, LSTM": {"agent": "PPO-v0", "model_type": "LSTM", **PPO},
    "PQN": {"agent": "PQN-v0", "epochs": 2, "minibatches": 2, "epsilon_steps": 100},
    "Random": {"agent": "Random-v0", "env": "Pendulum-v1"},
    "Search": {"agent": "Search-v0", "generation": 4, "n_steps": 20},
}


ON_ONE_RANK = ("DQN, discrete", "DQN, box", "A2C, discrete", "PPO, LSTM", "PQN")
ON_RANKS = tuple(case for case in CASES if case not in ON_ONE_RANK)
"""The cases that also run where actors lag, which PQN is refused; others of the same agents cover the
rest."""


def cases_of(workflow: str) -> tuple[str, ...]:
    """Of these, the ones that ``workflow`` takes."""
    return tuple(case for case in ON_RANKS if (workflow, case) != ("rma", "Search"))


def parameters(case: str, **others: Any) -> dict[str, Any]:
    """The parameters of a run that stops after 200 steps."""
    chosen = CASES[case]
    size = {"units": 8} if chosen.get("model_type") == "LSTM" else {"hidden": [8]}
    fixed = {"total_steps": 200, "block_steps": 10, "envs_per_actor": 2, "seed": 3}
    tuned_away: dict[str, Any] = {} if "env" in chosen else {"env": "ExaMaskedCartPole-v0"}
    if case not in (
        "Random",
        "Search",
    ):  # a schedule over the run is another one in a run's first part
        tuned_away["learning_rate_fraction"] = 0
    return {**fixed, **tuned_away, **size, **chosen, **others}


LEARN_ALONE = ("MBPO", "Search")
"""These have one learner wherever others have several."""


SMALL_FUSED = {
    "agent": "PPO-v0",
    "env": "CartPole-v1",
    "hidden": [8],
    "n_envs": 8,
    "block_steps": 16,
    "total_steps": 16 * 8 * 4,
    "minibatches": 2,
    "epochs": 2,
    "learning_rate_fraction": 0,  # as above
}
"""A program of the fused workflow that several tests use, so that it is compiled once."""
