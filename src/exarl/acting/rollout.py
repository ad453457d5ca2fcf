"""The one rollout: B environments and a policy give blocks of T steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from exarl.acting.block_builder import Assembly, Policy, act
from exarl.acting.env_batch import Bench
from exarl.agents.base import ExaAgent, Spread
from exarl.envs.episode import Episode
from exarl.learning.exploration import Streams
from exarl.types import ACTOR_PHASES, Arrays, Block

_WHOLE, _REAL = ("number", "length", "stream"), ("total_reward", "return")


class Rollout:
    """Acts for the environments of this actor: ``bench`` steps them, an assembly makes the blocks."""

    def __init__(
        self,
        agent: ExaAgent,
        episodes: Sequence[Episode],
        streams: Streams,
        block_steps: int,
        *,
        fixed_action: bool = False,
        spread: Spread | None = None,
        moved: Callable[[], None] = lambda: None,
    ) -> None:
        self.bench = Bench(episodes)
        self._agent = agent
        self._policy = Policy(agent, fixed_action)
        self._assembly = Assembly(agent, self.bench.env_ids, streams, block_steps)
        self._spread = spread
        self._moved = moved

    def collect(self, version: int, stopped: Callable[[], bool] | None = None) -> Block | None:
        """Step every environment ``block_steps`` times with the agent's present weights.

        Autoreset keeps the true last observation of an episode, and ``terminated`` apart from
        ``truncated``. An environment that fails is made anew if its episodes have a guard; without,
        EnvironmentFailure is raised when it returns NaN or infinity. When ``stopped``, asked between
        steps, says so, None is returned; the next call goes on with the same block.
        """
        bench, assembly, mine = self.bench, self._assembly, [self._assembly]
        bench.begin()
        if not assembly.open:
            bench.observe(assembly.seen)
            assembly.begin()
        inference = bench.restarting = 0.0
        started = perf_counter()
        while not assembly.complete:
            if stopped is not None and stopped():
                return None
            self._moved()
            asked = perf_counter()
            act(self._policy, mine)
            inference += perf_counter() - asked
            self._step()
        total = perf_counter() - started - bench.restarting
        seconds = np.zeros(len(ACTOR_PHASES))
        seconds[[0, 1, -1]] = total - inference, inference, bench.restarting
        block = assembly.finish(version, *bench.take_failures(), seconds)
        return self._agent.prepare(block, self._spread)

    def _step(self) -> None:
        assembly, row = self._assembly, self._assembly.row
        ends, cuts = self.bench.step(self._actions(), row)
        assembly.stepped(ends, cuts)
        while cuts:
            cut = cuts.pop()
            assembly.again(self._policy, cut)
            ends, failed = self.bench.step(self._actions(), row, [cut.slot])
            assembly.stepped(ends, failed)
            cuts += failed
        assembly.advance()

    def _actions(self) -> np.ndarray | list[int]:
        # Python integers are what most environments expect, and faster than NumPy's.
        actions = self._assembly.actions
        return actions.tolist() if self._agent.spec.n_actions is not None else actions

    def state(self, unfinished: bool = False) -> Arrays:
        """The running episodes and the place in the random streams, by environment number.

        ``unfinished``: also the block that ``collect`` was stopped in. Without, its steps are lost to
        a run that is resumed.
        """
        episodes = self.bench.state()
        if not unfinished:
            self._assembly.give_up()
        self._account_for_changes()
        begun = self._assembly.unfinished()
        return episodes | self._assembly.state() | begun

    def restore(self, arrays: Arrays) -> None:
        """Continue the episodes that ``arrays`` knows, and the block if one was begun; the other
        environments start afresh. ValueError where a stored number is none."""
        check_stored(arrays)
        self.bench.restore(arrays)
        self.bench.observe(np.empty_like(self._assembly.seen))  # which they must fit into
        self._assembly.reopen(arrays)
        changed = [] if self._assembly.open else [cut.slot for cut in self.bench.changed]
        self._assembly.restore(arrays, changed)
        self._account_for_changes()

    def _account_for_changes(self) -> None:
        assembly, cuts = self._assembly, self.bench.changed
        if cuts:
            seen = np.empty_like(assembly.seen)
            self.bench.observe(seen)
            assembly.moved(cuts, seen)

    def close(self) -> None:
        self.bench.close()


def check_stored(states: Arrays) -> None:
    """ValueError where a number in the stored states of environments is none of its kind."""
    for name, array in states.items():
        what = name.partition("/")[2]
        whole = what in _WHOLE and (array.dtype.kind not in "iu" or array.size != 1)
        if whole or (what in _REAL and (array.dtype.kind != "f" or not np.isfinite(array).all())):
            raise ValueError(f"{name} is no number of its kind")
