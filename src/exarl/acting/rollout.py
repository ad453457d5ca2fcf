"""The rollout: B environments and a policy give blocks of T steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np

from exarl.acting.block_builder import ActingPolicy, BlockBuilder, act
from exarl.acting.env_batch import EnvBatch
from exarl.agents.base import ExaAgent, Spread
from exarl.envs.episode import Episode
from exarl.learning.exploration import Streams
from exarl.types import ACTOR_PHASES, Arrays, Block

_WHOLE, _REAL = ("number", "length", "stream"), ("total_reward", "return")


class Rollout:
    """Acts in the environments of this actor: ``envs`` steps them, a builder makes the blocks."""

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
        self.envs = EnvBatch(episodes)
        self._agent = agent
        self._policy = ActingPolicy(agent, fixed_action)
        self._builder = BlockBuilder(agent, self.envs.env_ids, streams, block_steps)
        self._spread = spread
        self._moved = moved

    def collect(self, version: int, stopped: Callable[[], bool] | None = None) -> Block | None:
        """Step every environment ``block_steps`` times with the agent's present weights.

        Autoreset keeps the true last observation of an episode, and ``terminated`` apart from
        ``truncated``. An environment that fails is replaced by a new one if its episodes have a guard;
        without, EnvironmentFailure is raised when it returns NaN or infinity. ``stopped`` is called
        between steps; when it returns True, ``collect`` returns None, and the next call goes on with
        the same block.
        """
        envs, builder, mine = self.envs, self._builder, [self._builder]
        envs.begin()
        if not builder.open:
            envs.observe(builder.seen)
            builder.begin()
        envs.take_restarting()  # between two blocks
        inference = 0.0
        started = perf_counter()
        while not builder.complete:
            if stopped is not None and stopped():
                return None
            self._moved()
            asked = perf_counter()
            act(self._policy, mine)
            inference += perf_counter() - asked
            self._step()
        restarting = envs.take_restarting()
        total = perf_counter() - started - restarting
        seconds = np.zeros(len(ACTOR_PHASES))
        seconds[[0, 1, -1]] = total - inference, inference, restarting
        block = builder.finish(version, *envs.take_failures(), seconds)
        return self._agent.prepare(block, self._spread)

    def _step(self) -> None:
        builder, row = self._builder, self._builder.row
        ends, cuts = self.envs.step(self._actions(), row)
        builder.took(self.envs.taken)
        builder.stepped(ends, cuts)
        while cuts:
            cut = cuts.pop()
            builder.again(self._policy, cut)
            ends, failed = self.envs.step(self._actions(), row, [cut.slot])
            builder.took(self.envs.taken)
            builder.stepped(ends, failed)
            cuts += failed
        builder.advance()

    def _actions(self) -> np.ndarray | list[int]:
        # Python integers are what most environments expect, and faster than NumPy's.
        actions = self._builder.actions
        return actions.tolist() if self._agent.spec.n_actions is not None else actions

    def state(self, unfinished: bool = False) -> Arrays:
        """The running episodes and the place in the random streams, by environment number.

        ``unfinished``: also the block that ``collect`` was stopped in. Without it, a resumed run does
        not have these steps.
        """
        episodes = self.envs.state()
        if not unfinished:
            self._builder.give_up()
        self._account_for_changes()
        begun = self._builder.unfinished()
        return episodes | self._builder.state() | begun

    def restore(self, arrays: Arrays) -> None:
        """Continue the episodes in ``arrays``, and the block if one was begun; the other environments
        start their first episode. ValueError where a stored number has the wrong type."""
        check_stored(arrays)
        self.envs.restore(arrays)
        self.envs.observe(np.empty_like(self._builder.seen))  # raises if they do not fit
        self._builder.reopen(arrays)
        changed = [] if self._builder.open else [cut.slot for cut in self.envs.changed]
        self._builder.restore(arrays, changed)
        self._account_for_changes()

    def _account_for_changes(self) -> None:
        builder, cuts = self._builder, self.envs.changed
        if cuts:
            seen = np.empty_like(builder.seen)
            self.envs.observe(seen)
            builder.moved(cuts, seen)

    def close(self) -> None:
        self.envs.close()


def check_stored(states: Arrays) -> None:
    """Raise ValueError where a number in the stored states of environments has the wrong type."""
    for name, array in states.items():
        what = name.partition("/")[2]
        whole = what in _WHOLE and (array.dtype.kind not in "iu" or array.size != 1)
        if whole or (what in _REAL and (array.dtype.kind != "f" or not np.isfinite(array).all())):
            raise ValueError(f"{name} is no number of its kind")
