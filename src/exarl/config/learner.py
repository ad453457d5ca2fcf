"""The parameters of the run itself; each component documents its own beside its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from exarl.config.grammar import read_condition
from exarl.config.schema import param
from exarl.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")
STOPS = ("total_steps", "n_episodes", "updates", "wall_time", "core_hours", "target_reward")
"""The parameters that end a run."""

GROUPS: dict[str, tuple[str, ...]] = {
    "what to train": (
        *("agent", "env", "workflow", "model_type", "seed"),
        *("start_from", "start_parts", "start_best"),
    ),
    "when to stop (the first that is reached)": (*STOPS, "stop_when", "reward_window"),
    "experience from before": ("prior_data", "prior_part", "clone"),
    "evaluation during training": ("eval_interval", "eval_episodes"),
    "the environment": (
        *("n_steps", "weights", "preferences", "frame_stack", "drop_observations"),
        *("policies", "agents_change", "common_reward"),
        *("residual", "residual_scale", "residual_observes"),
        *("action_type", "env_failure", "max_env_failures"),
        *("env_isolation", "step_timeout", "reset_timeout"),
    ),
    "ranks and blocks": (
        *("envs_per_actor", "block_steps", "learner_procs", "process_per_env", "cores_per_env"),
    ),
    "files": (
        *("output_dir", "run_dir", "checkpoint_interval", "keep_checkpoints"),
        *("curve_x", "record", "record_limit"),
    ),
    "logging": (
        *("log_info", "log_level", "log_to", "log_online", "log_project", "watchdog", "profile"),
    ),
}
"""The parameters in the order of 'exarl train --help'; one that is missing here comes last."""


@dataclass(frozen=True)
class LearnerConfig:
    """What to train, for how long, on how many ranks, and which files to write."""

    agent: str = param("DQN-v0", "agent id; see 'exarl list agents'")
    env: str = param("CartPole-v1", "Gymnasium environment id; see 'exarl list envs'")
    workflow: str = param("sync", "how experience reaches the learner; see 'exarl list workflows'")
    model_type: str = param("MLP", "network of the agent; see 'exarl list models'")

    start_from: str | None = param(
        None, "begin with the policy of this run, of its newest checkpoint (same agent and network)"
    )
    start_parts: tuple[Literal["policy", "critics", "normalizers", "replay", "optimizer"], ...] = (
        param(("policy",), "what to begin with of the run in start_from")
    )
    start_best: bool = param(
        False, "begin with the policy that has the best evaluation in start_from, not the newest"
    )

    total_steps: int | None = param(
        None,
        "stop after this number of environment steps; 0: learn from prior_data alone, for updates",
        ge=0,
    )
    n_episodes: int | None = param(None, "stop after this number of episodes", ge=1)
    updates: int | None = param(None, "stop after this number of updates", ge=1)
    wall_time: float | None = param(None, "stop after this number of seconds", gt=0)
    core_hours: float | None = param(
        None, "stop after this number of core-hours, simulated and learning together", gt=0
    )
    target_reward: float | None = param(
        None, "stop when the mean return of the last reward_window episodes reaches this"
    )
    stop_when: str | None = param(
        None, "stop when a number of log_info reaches this, as in 'info/energy_min<-10'"
    )
    n_steps: int | None = param(
        None,
        "truncate episodes after this number of steps; null: the environment's own limit",
        ge=1,
    )
    reward_window: int = param(
        100, "number of latest episodes in the reported mean return", ge=1, le=10**7
    )

    prior_data: tuple[str, ...] = param(
        (), "recorded runs or datasets, comma-separated, of which a part of each batch is taken"
    )
    prior_part: float = param(0.5, "that part; the rest is fresh experience", gt=0, lt=1)
    clone: int = param(
        0, "updates that first make the policy do what was done in prior_data", ge=0, le=10**9
    )

    eval_interval: int | None = param(
        None, "steps between evaluations of the greedy policy during training; null: none", ge=1
    )
    eval_episodes: int = param(10, "episodes in each evaluation", ge=1)

    weights: tuple[float, ...] = param(
        (), "of the rewards of an environment that gives several: their weighted sum is learned"
    )
    preferences: bool = param(
        False,
        "show the weights of several rewards to the policy; without weights each episode has its own,"
        " drawn at random",
    )
    policies: tuple[str, ...] = param(
        (), "policies of the agents of a simulation, as in 'prey=agent_*'; none: all share one"
    )
    agents_change: bool = param(
        False, "the agents of a simulation of several come and go within an episode"
    )
    common_reward: bool = param(
        False, "pay each agent of a simulation of several the mean of what all of them are paid"
    )
    frame_stack: int = param(1, "number of latest observations stacked into one", ge=1, le=64)
    drop_observations: str = param(
        "", "parts of Dict or Tuple observations to leave out, comma-separated; a/b is part b of a"
    )
    seed: int = param(0, "all random numbers of the run are derived from it", ge=0, le=2**63 - 1)
    envs_per_actor: int = param(1, "environments stepped by each actor", ge=1, le=4096)
    block_steps: int = param(32, "steps per environment in one block", ge=1, le=1_000_000)
    learner_procs: int = param(1, "ranks that learn", ge=1, le=100_000)
    process_per_env: int = param(1, "ranks that step one environment together", ge=1, le=100_000)
    residual: str | None = param(
        None,
        "module:name of a controller whose actions the policy corrects: clip(controller + scale *"
        " policy)",
    )
    residual_scale: float = param(
        0.3,
        "of the corrections, in halves of the range of actions (without bounds: in their unit)",
        gt=0,
    )
    residual_observes: bool = param(
        False, "the policy sees the controller's action, behind the observation"
    )
    cores_per_env: int | None = param(
        None,
        "cores that one environment computes on, for core-hours; null: process_per_env",
        ge=1,
        le=10**7,
    )
    action_type: Literal["variable", "fixed"] = param(
        "variable",
        "variable: the policy chooses; fixed: always the first action, to measure speed",
    )

    env_failure: Literal["raise", "restart"] = param(
        "raise",
        "a failing environment ends the run (raise), or is created again and its episode cut (restart)",
    )
    env_isolation: Literal["inline", "process"] = param(
        "inline", "process: each environment runs in its own process, which may crash or be killed"
    )
    step_timeout: float | None = param(
        None, "seconds after which a step counts as a failure; needs env_isolation process", gt=0
    )
    reset_timeout: float | None = param(
        None, "the same for a reset, and for reading or restoring the environment's state", gt=0
    )
    max_env_failures: int = param(
        10,
        "with env_failure restart: consecutive failures of one environment that end the run",
        ge=1,
    )

    on_divergence: Literal["stop", "warn", "rollback"] = param(
        "stop",
        "when losses or weights are not finite: end the run (stop), print a warning (warn), or continue"
        " from the last good checkpoint with other random numbers, up to 3 times (rollback)",
    )

    output_dir: str = param("./results_dir/", "folder that holds the run directories")
    run_dir: str | None = param(
        None, "use exactly this run directory; an unfinished run in it is continued"
    )
    checkpoint_interval: float = param(60.0, "seconds between checkpoints; 0: every block", ge=0)
    keep_checkpoints: int = param(3, "number of newest checkpoints to keep", ge=1)
    curve_x: Literal["steps", "time", "updates", "simulations", "core_hours"] = param(
        "steps", "x axis of learning_curve.png"
    )
    record: bool = param(False, "keep every episode in the run directory, as a Minari dataset")
    record_limit: str | None = param(
        None,
        "the most that record keeps, such as 2GB or 500episodes: the oldest go first; null: everything",
    )
    log_info: tuple[str, ...] = param(
        (), "numbers of the environment's info that become metrics: names, or all"
    )
    log_level: int | str | list[int] = param(
        "info",
        "debug | info | warning | error, or 0..3; a pair as in the original EXARL, [3, 3], is accepted",
    )
    log_to: tuple[Literal["wandb", "mlflow"], ...] = param(
        (), "also log to Weights & Biases and/or MLflow, besides the run's files and TensorBoard"
    )
    log_online: bool = param(
        False, "log_to may use the network; false: it writes only into the run directory"
    )
    log_project: str | None = param(
        None,
        "project in W&B, experiment in MLflow; null: from their environment variables, else 'exarl'",
    )
    watchdog: float | None = param(
        None, "seconds without progress after which a rank writes its stack to its log", gt=0
    )
    profile: Literal["none", "trace", "lanes", "cprofile"] = param(
        "none",
        "trace: a Chrome trace with one track per rank; lanes: the same in outline, while the run goes"
        " on, for exarl dashboard; cprofile: one profile per rank",
    )

    def __post_init__(self) -> None:
        self.log_level_name()
        self._check_stop_when()
        self._check_prior()
        self._check_start()
        for name in ("output_dir", "run_dir", "start_from"):
            if getattr(self, name) == "":
                raise ConfigError(f"{name} must name a folder")
        isolated = self.env_isolation == "process"
        for name in ("step_timeout", "reset_timeout"):
            if getattr(self, name) is not None and not isolated:
                raise ConfigError(
                    f"{name} needs env_isolation process: an environment that hangs can only be"
                    " stopped if it runs in its own process"
                )
        self._check_several_agents()
        if self.residual is not None and not all(self.residual.partition(":")):
            raise ConfigError(f"residual is module:name of a controller, not '{self.residual}'")
        if self.residual is not None and self.process_per_env > 1:
            raise ConfigError("residual needs process_per_env 1: a controller acts on one rank")
        if self.process_per_env > 1 and (isolated or self.env_failure == "restart"):
            key = "env_isolation process" if isolated else "env_failure restart"
            raise ConfigError(
                f"{key} needs process_per_env 1: ranks that step an environment together cannot be"
                " replaced one by one"
            )

    def _check_several_agents(self) -> None:
        for name in ("policies", "agents_change", "common_reward"):
            for key, given in (
                ("env_isolation process", self.env_isolation == "process"),
                ("workflow fused", self.workflow == "fused"),
            ):
                if given and getattr(self, name):
                    raise ConfigError(f"{name} is for several agents, which {key} cannot have")

    @property
    def offline(self) -> bool:
        """Whether nothing is learned but prior data."""
        return self.total_steps == 0

    def _check_prior(self) -> None:
        if self.clone and not self.prior_data:
            raise ConfigError("clone needs prior_data, whose actions it imitates")
        if self.offline and not (self.prior_data and self.updates):
            raise ConfigError("total_steps 0 learns from prior_data alone: give it and updates")
        if self.offline and (self.workflow != "sync" or self.learner_procs > 1):
            raise ConfigError("total_steps 0 learns in one process: use workflow sync on one rank")
        if self.offline and self.record:
            raise ConfigError("total_steps 0 acts in no environment: there is nothing to record")

    def _check_start(self) -> None:
        if self.start_from is None:
            if self.start_parts != ("policy",) or self.start_best:
                raise ConfigError("start_parts and start_best need start_from, a run to begin with")
        elif not self.start_parts:
            raise ConfigError("start_parts names nothing to begin with: leave start_from out")
        elif self.start_best and self.start_parts != ("policy",):
            raise ConfigError("start_best begins with a policy: start_parts can only be policy")

    def _check_stop_when(self) -> None:
        if self.stop_when is None:
            return
        name = read_condition(self.stop_when, "stop_when").name
        if not (name.startswith("info/") and name.endswith(("_mean", "_last", "_min", "_max"))):
            raise ConfigError(
                f"stop_when: '{name}' is no column such as info/energy_mean (or _last, _min, _max)"
            )
        if not self.log_info:
            raise ConfigError("stop_when needs log_info with the number's name")

    def log_level_name(self) -> str:
        """``log_level`` as one of LEVELS; of a pair the first number counts. ConfigError otherwise."""
        level = self.log_level
        if isinstance(level, list):
            level = level[0] if level else ""
        if level in LEVELS:
            return str(level)
        if isinstance(level, int) and 0 <= level < len(LEVELS):
            return LEVELS[level]
        raise ConfigError(
            f"log_level is one of {', '.join(LEVELS)} or 0..3, not {self.log_level!r}"
        )
