"""The one learning loop: what it counts, reports and keeps, and when it stops."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.envs import Counter
from support.learning import (
    Scripted,
    adapter_of,
    discrete_spec,
    make_agent,
    make_episode,
    random_block,
)

from exarl.acting.evaluation import Evaluation, Evaluator
from exarl.config import STOPS, LearnerConfig
from exarl.records.checkpoint import Checkpoint, load_newest
from exarl.records.clock import Clock
from exarl.records.directory import RunDirectory
from exarl.records.metrics import FROM_BLOCKS, read_rows, row_due
from exarl.records.signals import StopSignals
from exarl.records.trace import Tracer
from exarl.training.loop import LearningLoop
from exarl.types import Block

SPEC = discrete_spec()
NO_TOTALS = dict.fromkeys(FROM_BLOCKS, 0)


class Shown:
    """A progress display that remembers."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def update(self, row: Any) -> None:
        self.rows.append(row)

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def close(self) -> None:
        pass


class Evaluating:
    """An evaluator whose every evaluation has ended before the next block."""

    def __init__(self, rewards: Sequence[float]) -> None:
        self.rewards = list(rewards)
        self.offered: list[tuple[int, np.ndarray]] = []

    running = False

    def offer(
        self, steps: int, weights: Callable[[], np.ndarray], *, at_once: bool = False
    ) -> None:
        self.offered.append((steps, weights()))

    def result(self, wait: bool = False) -> Evaluation | None:
        if not self.rewards or len(self.offered) < 2:
            return None
        steps, weights = self.offered[-2]
        return Evaluation(steps, [self.rewards.pop(0)], [7], weights)

    def close(self) -> None:
        pass


class Loop:
    """A learning loop in a directory of its own, and what it is connected to."""

    made: ClassVar[list[LearningLoop]] = []

    def __init__(self, path: Path, resumed: Checkpoint | None = None, **config: Any) -> None:
        self.run = RunDirectory(path)
        self.run.create({}, {})
        self.agent = Scripted(SPEC)
        self.shown = Shown()
        self.signals = StopSignals()
        clock = Clock(Tracer(0, "learner", enabled=False))
        settings = LearnerConfig(**{"reward_window": 4, **config})
        self.loop = LearningLoop(
            self.agent, settings, self.run, self.shown, clock, self.signals, resumed
        )
        self.made.append(self.loop)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, once the loop is closed."""
        return read_rows(self.run.result)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Files that are still open are closed after each test, not whenever memory is collected."""
    yield
    while Loop.made:
        Loop.made.pop().abandon()


def block_of(returns: Sequence[float] = (), steps: int = 5, width: int = 2, **fields: Any) -> Block:
    """A block in which episodes of these returns ended."""
    plain = random_block(SPEC, 0, steps, width, p_end=0)
    return Block(
        plain.observations,
        plain.actions,
        plain.rewards,
        plain.terminated,
        plain.truncated,
        np.zeros((len(returns), 3), np.float32),
        np.array(returns, float),
        np.arange(len(returns)) + 10,
        **fields,
    )


def train_until_finished(loop: LearningLoop, block: Block, at_most: int = 100) -> int:
    """How many blocks it takes."""
    for count in range(at_most):
        if loop.finished:
            return count
        loop.train(block)
    raise AssertionError("the loop does not stop")


def test_training_beyond_the_end_of_a_schedule_is_told_once(tmp_path: Path) -> None:
    """By the block before which it had ended: not by one that ends it, which may be the last."""
    made, told = Loop(tmp_path / "run"), []
    made.agent.ended_schedules = lambda *made: {"x": f"{made}"} if made[0] > 9 else {}  # type: ignore[method-assign]
    made.shown.note = told.append  # type: ignore[method-assign]
    for count in range(4):
        assert told == ["(10, 3)"] * (count > 1)
        made.loop.train(block_of())
    assert told == ["(10, 3)"]


# -- stopping -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "returns", "expected"),
    [
        ({"total_steps": 30}, [], 3),
        ({"total_steps": 31}, [], 4),
        ({"n_episodes": 5}, [1, 2], 3),
        ({"target_reward": 1.5}, [1, 2], 2),
        ({"target_reward": -2, "reward_window": 7}, [-2, -2], 4),
        ({"total_steps": 1000, "n_episodes": 2}, [1], 2),
    ],
)
def test_stops_on_each_criterion(
    tmp_path: Path, config: dict[str, Any], returns: list[float], expected: int
) -> None:
    loop = Loop(tmp_path, **config).loop
    assert not loop.finished
    assert train_until_finished(loop, block_of(returns)) == expected
    assert loop.reason in {*STOPS} & set(config)
    assert loop.close()["reason"] == loop.reason


def test_the_target_needs_a_full_window(tmp_path: Path) -> None:
    loop = Loop(tmp_path, target_reward=5.0, reward_window=3).loop
    loop.train(block_of([100, 100]))
    assert not loop.finished
    loop.train(block_of([-190]))
    assert not loop.finished  # 10 / 3
    loop.train(block_of([105]))
    assert loop.reason == "target_reward"  # (100 - 190 + 105) / 3 = 5


def test_stops_when_the_time_is_over(tmp_path: Path) -> None:
    loop = Loop(tmp_path, wall_time=1000.0).loop
    loop.train(block_of())
    assert not loop.finished
    loop._started -= 1000
    loop.train(block_of())
    assert loop.reason == "wall_time"
    assert loop.close()["wall_s"] >= 1000


def test_time_spent_before_a_resume_counts(tmp_path: Path) -> None:
    parts = Loop(tmp_path, wall_time=1000.0)
    parts.loop._started -= 999
    parts.loop.train(block_of())
    parts.loop.checkpoint({})
    again = Loop(tmp_path, resumed=stored(parts), wall_time=1000.0).loop
    assert not again.finished
    again._started -= 1
    again.train(block_of())
    assert again.reason == "wall_time"


def test_a_signal_stops_before_anything_else(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=10)
    parts.signals.received = signal.SIGTERM
    parts.loop.train(block_of())
    assert parts.loop.reason == "SIGTERM"
    assert parts.loop.checkpoint_due()


def test_should_stop_sees_signals_without_a_block(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=10)
    assert not parts.loop.should_stop()
    parts.signals.received = signal.SIGUSR1
    assert parts.loop.should_stop()
    assert parts.loop.reason == "SIGUSR1"


# -- counting -------------------------------------------------------------------------------------


def test_counts_what_the_blocks_bring(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=10**6)
    loop = parts.loop
    for restarts in (0, 2, 1):
        loop.train(block_of([1, 2], restarts=restarts))
    counters = loop.counters
    assert (counters.iteration, counters.version) == (3, 3)
    assert (counters.steps, counters.episodes) == (30, 6)
    assert (counters.updates, counters.totals["env_restarts"]) == (9, 3)
    assert len(parts.agent.trained) == 3
    weights, version = loop.weights()
    assert (weights.tolist(), version) == ([3.0], 3)


def test_an_agent_that_reports_no_updates_has_made_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Loop(tmp_path, total_steps=20)
    monkeypatch.setattr(parts.agent, "train", lambda block: {"loss": 0.5})
    for _ in range(2):
        parts.loop.train(block_of())
    assert parts.loop.counters.updates == 0
    summary = parts.loop.close()
    assert (summary["timesteps_total"], summary["updates_total"]) == (20, 0)
    assert [row["updates_total"] for row in parts.rows()] == [0, 0]


def test_failures_are_counted_by_environment_and_kind(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=40)
    parts.loop.train(block_of(failures=np.array([[3, 1, 0, 2, 0, 0], [0, 0, 1, 0, 0, 0]])))
    parts.loop.train(block_of())
    parts.loop.checkpoint({})
    parts.loop.abandon()
    again = Loop(tmp_path, resumed=stored(parts), total_steps=40)
    again.loop.train(block_of(failures=np.array([[3, 1, 0, 0, 4, 0], [11, 0, 0, 0, 0, 5]])))
    again.loop.train(block_of())
    summary = again.loop.close()
    totals = {"raise": 2, "crash": 1, "timeout": 2, "nan": 4, "shape": 5}
    assert summary["env_failures"] == {
        **totals,
        "environments": {
            "0": {"crash": 1},
            "3": {"raise": 2, "timeout": 2, "nan": 4},
            "11": {"shape": 5},
        },
    }
    rows = again.rows()
    assert [row["env_raise"] for row in rows] == [1, 1, 2, 2]
    assert {kind: rows[-1][f"env_{kind}"] for kind in totals} == totals
    assert (
        "env_raise,env_crash,env_timeout,env_nan,env_shape,"
        in (again.run.progress.read_text().splitlines()[0])
    )


def test_a_table_begun_with_other_columns_goes_on_with_them(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=40)
    parts.loop.train(block_of([1]))
    parts.loop.checkpoint({})
    parts.loop.abandon()
    old = "training_iteration,env_restarts,timesteps_total\n1,0,10\n"
    parts.run.progress.write_text(old)
    again = Loop(tmp_path, resumed=stored(parts), total_steps=40)
    again.loop.train(block_of([1], restarts=2))
    again.loop.close()
    assert parts.run.progress.read_text() == old + "2,2,20\n"


def test_the_window_looks_back_so_many_episodes(tmp_path: Path) -> None:
    loop = Loop(tmp_path, reward_window=3, total_steps=10**6).loop
    loop.train(block_of([1, 2]))
    assert not loop.window.full
    loop.train(block_of([3, 4]))
    assert loop.window.full
    assert list(loop.window.returns) == [2, 3, 4]
    assert list(loop.window.lengths) == [11, 10, 11]


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_the_best_reward_is_the_best_of_full_windows(tmp_path: Path, scale: float) -> None:
    loop = Loop(tmp_path, reward_window=2, total_steps=10**6).loop
    means, best = [], []
    for pair in ([0, 0], [3, 1], [-8, -9], [1, 0], [0, 0]):
        loop.train(block_of([scale * value for value in pair]))
        means.append(scale * sum(pair) / 2)
        best.append(loop.counters.best_reward)
    assert best == [max(means[: i + 1]) for i in range(len(means))]
    summary = loop.close()
    assert summary["best_reward_mean"] == max(means)
    assert summary["last_reward_mean"] == 0


def test_no_best_reward_before_the_window_is_full(tmp_path: Path) -> None:
    loop = Loop(tmp_path, reward_window=3, total_steps=10**6).loop
    loop.train(block_of([50, 50]))
    loop.train(block_of([]))
    assert loop.counters.best_reward is None
    loop.train(block_of([-100]))
    assert loop.counters.best_reward == 0


# -- rows -----------------------------------------------------------------------------------------


def test_rows_hold_the_numbers_of_their_iteration(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=20)
    parts.loop.train(block_of([]))
    parts.loop.train(block_of([4, -1], restarts=1))
    parts.loop.close()
    first, second = parts.rows()
    assert first["training_iteration"] == 1
    assert first["episode_reward_mean"] is None
    expected = {
        "training_iteration": 2, "timesteps_total": 20, "episodes_total": 2, "updates_total": 6,
        "episode_reward_mean": 1.5, "episode_reward_min": -1, "episode_reward_max": 4,
        "episode_len_mean": 10.5, "env_restarts": 1, "loss": 2.0, "policy_lag_mean": 1,
    }  # fmt: skip
    assert {name: second[name] for name in expected} == expected
    with parts.run.progress.open() as file:
        listed = list(csv.DictReader(file))
    assert [row["timesteps_total"] for row in listed] == ["10", "20"]
    assert listed[0]["episode_reward_mean"] == ""
    assert listed[1]["loss"] == "2.0"
    assert [row["timesteps_total"] for row in parts.shown.rows] == [10, 20]


def test_the_policy_lag_is_how_old_the_acting_weights_were(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=40)
    for version in (0, 1, 0, 3):
        parts.loop.train(block_of(version=version))
    parts.loop.close()
    assert [row["policy_lag_max"] for row in parts.rows()] == [0, 0, 2, 0]


def test_a_row_is_due_for_every_iteration_first_and_ever_fewer_later() -> None:
    assert all(row_due(iteration) for iteration in range(1, 1001))
    due = [iteration for iteration in range(1, 64_000) if row_due(iteration)]
    gaps = np.diff(due)
    assert (np.diff(gaps) >= 0).all()
    assert set(gaps) == {1, 2, 4, 8, 16, 32}
    for doubling in range(6):  # a thousand rows for each doubling of the run
        low = 1000 * 2**doubling
        assert sum(low <= iteration < 2 * low for iteration in due) == 1000


def test_rows_are_thinned_and_averaged(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=10**9)
    parts.loop.counters.iteration = 3990  # every second iteration has a row, then every fourth
    block = block_of()
    for _ in range(20):
        parts.loop.train(block)
    parts.loop._config = LearnerConfig(total_steps=1)
    parts.loop.train(block)
    parts.loop.close()
    rows = parts.rows()
    expected = [3992, 3994, 3996, 3998, 4000, 4004, 4008]
    assert [row["training_iteration"] for row in rows] == expected
    # The scripted loss is the number of the block: a row is the mean of those since the last.
    assert [row["loss"] for row in rows] == [1.5, 3.5, 5.5, 7.5, 9.5, 12.5, 16.5]


# -- keeping --------------------------------------------------------------------------------------


def stored(parts: Loop) -> Checkpoint:
    found = load_newest(parts.run.checkpoints)
    assert found is not None
    return found


def test_a_resumed_loop_continues_where_it_was(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=60)
    for count in range(3):
        parts.loop.train(block_of([count, 10 * count], restarts=1))
    parts.loop.checkpoint({"0/at": np.arange(3)})
    for _ in range(2):
        parts.loop.train(block_of([7]))  # a future that will be lost
    parts.loop._metrics.flush()
    checkpoint = stored(parts)
    np.testing.assert_array_equal(checkpoint.arrays["envs"]["0/at"], np.arange(3))
    again = Loop(tmp_path, resumed=checkpoint, total_steps=60)
    counters, before = again.loop.counters, checkpoint.numbers["counters"]
    assert counters.seconds > 0
    names = ("iteration", "steps", "episodes", "updates", "version", "totals", "best_reward")
    assert {name: getattr(counters, name) for name in names} == {
        "iteration": 3, "steps": 30, "episodes": 6, "updates": 9, "version": 3,
        "totals": NO_TOTALS | {"env_restarts": 3}, "best_reward": 8.25,
    }  # fmt: skip
    assert {name: before[name] for name in names} == {n: getattr(counters, n) for n in names}
    assert list(again.loop.window.returns) == [1, 10, 2, 20]
    assert train_until_finished(again.loop, block_of()) == 3
    again.loop.close()
    assert [row["training_iteration"] for row in again.rows()] == [1, 2, 3, 4, 5, 6]
    assert again.loop.seconds > before["seconds"]


def test_a_loop_resumed_after_its_end_is_finished(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=10)
    parts.loop.train(block_of())
    parts.loop.checkpoint({})
    again = Loop(tmp_path, resumed=stored(parts), total_steps=10)
    assert again.loop.reason == "total_steps"
    assert Loop(tmp_path, resumed=stored(parts), total_steps=11).loop.reason is None


def test_checkpoints_are_due_by_time_and_at_the_end(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "a", total_steps=20, checkpoint_interval=3600).loop
    loop.train(block_of())
    assert not loop.checkpoint_due()
    loop.train(block_of())
    assert loop.finished
    assert loop.checkpoint_due()
    eager = Loop(tmp_path / "b", total_steps=20, checkpoint_interval=0).loop
    assert eager.checkpoint_due()


def test_old_checkpoints_make_room(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=100, keep_checkpoints=2)
    for _ in range(4):
        parts.loop.train(block_of())
        parts.loop.checkpoint({})
    kept = sorted(int(path.name) for path in parts.run.checkpoints.iterdir())
    assert kept == [30, 40]


def test_an_evaluation_that_has_ended_is_kept_while_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Loop(tmp_path, total_steps=10**6)
    parts.loop._evaluator = Evaluating([2.0, 5.0, 3.0])  # type: ignore[assignment]
    notes: list[str] = []
    monkeypatch.setattr(parts.shown, "note", notes.append)
    parts.loop.train(block_of())
    assert not parts.run.evaluations.exists()
    for _ in range(3):
        parts.loop.train(block_of())
    assert not parts.loop.finished
    with parts.run.evaluations.open() as file:
        listed = list(csv.DictReader(file))
    found = [(row["timesteps_total"], float(row["reward_mean"])) for row in listed]
    assert found == [("10", 2.0), ("20", 5.0), ("30", 3.0)]
    assert [note.endswith("(best)") for note in notes] == [True, True, False]
    assert parts.loop.counters.best_evaluation == 5.0
    best = load_newest(parts.run.best)
    assert best is not None
    assert best.numbers["reward_mean"] == 5.0
    assert best.arrays["agent"]["weights"].tolist() == [2.0], "those of step 20"


@pytest.mark.parametrize("signalled", [False, True])
def test_the_last_policy_is_evaluated_unless_a_signal_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signalled: bool
) -> None:
    parts = Loop(tmp_path, total_steps=25)
    agent = make_agent(adapter_of(Counter(lengths=[3])).spec)
    evaluator = Evaluator(agent, make_episode(Counter(lengths=[3])), every=20, episodes=2)
    parts.loop._evaluator = evaluator
    monkeypatch.setattr(parts.shown, "note", lambda _: None)
    monkeypatch.setattr(parts.agent, "get_weights", agent.get_weights)
    for _ in range(3):
        parts.loop.train(block_of())
        evaluator.wait(20)  # so that no evaluation is left out
    if signalled:
        parts.signals.received = signal.SIGTERM
    summary = parts.loop.close()
    with parts.run.evaluations.open() as file:
        steps = [row["timesteps_total"] for row in csv.DictReader(file)]
    assert steps == (["20"] if signalled else ["20", "30"])
    assert parts.loop.last_evaluation is not None
    assert summary["last_evaluation"] == parts.loop.last_evaluation.reward_mean


def test_the_summary_is_what_close_returns(tmp_path: Path) -> None:
    parts = Loop(tmp_path, total_steps=20)
    seconds = np.array([3.0, 1.0, 0.0, 0.0, 0.0])
    for _ in range(2):
        parts.loop.train(block_of([2.0], seconds=seconds))
    parts.loop._started -= 90
    summary = parts.loop.close()
    assert json.loads(parts.run.summary.read_text()) == summary
    expected = {
        "reason": "total_steps", "timesteps_total": 20, "episodes_total": 2, "updates_total": 6,
        "training_iteration": 2, "last_reward_mean": 2.0, "best_reward_mean": None,
        "env_restarts": 0,
    }  # fmt: skip
    assert {name: summary[name] for name in expected} == expected
    assert (summary["steps_per_s"], summary["updates_per_s"]) == (0.2, 0.1)
    assert summary["time_split"]["actors"]["env"] == 0.75
    assert summary["time_split"]["actors"]["inference"] == 0.25
    assert sum(summary["time_split"]["learner"].values()) == pytest.approx(1, abs=0.01)


def test_a_rate_leaves_compiling_out(tmp_path: Path) -> None:
    parts = Loop(tmp_path)
    parts.loop._rows._last_row -= 100
    parts.loop._clock.add("compile", 99.0)
    parts.loop.train(block_of())
    rate = parts.shown.rows[-1]["steps_per_s"]
    assert 9 < rate < 10.1  # ten steps in a second
    parts.loop._rows._last_row -= 100
    parts.loop.train(block_of())
    assert parts.shown.rows[-1]["steps_per_s"] < 0.2


def test_rows_tell_the_quartiles_of_returns(tmp_path: Path) -> None:
    parts = Loop(tmp_path, reward_window=9)
    parts.loop.train(block_of([9, 1, 8, 2, 7, 3, 6, 4, 5]))
    row = parts.shown.rows[-1]
    assert (row["episode_reward_q25"], row["episode_reward_q75"]) == (3, 7)
