"""ExaClient-v0: a simulation or an instrument that owns its loop, and asks for actions."""

from __future__ import annotations

import weakref

import numpy as np
from gymnasium import spaces

from exarl.envs.base import Info
from exarl.envs.context import EnvContext
from exarl.envs.external.caller import Caller, Door, key_at, place_of
from exarl.envs.external.client import Seen
from exarl.envs.external.env import ProgramEnv, Timeouts, check_seconds, split_command
from exarl.envs.external.extras import Extra
from exarl.envs.external.launch import launch
from exarl.envs.external.program import Program
from exarl.envs.external.protocol import Kind, Message, ProtocolError, decode, encode
from exarl.envs.external.spaces import check_value
from exarl.envs.taken import TAKEN
from exarl.errors import EnvironmentFailure
from exarl.types import Arrays

_KIND_AT = 5  # the byte of a message that says its kind


class LoopEnv(ProgramEnv[Program | Caller]):
    """A program that calls EXARL when it needs an action, by the client library; docs/external.md.

    Either EXARL starts it with ``command``, or it connects by itself to ``address``. Where EXARL ends
    an episode that goes on in the program (``n_steps``), a program that was started is started again;
    with one that has connected, the next episode begins where it is.

    command: the program and its words, as in a shell but without one.
    address: where to wait for the program: unix:PATH, or HOST:PORT with a key. With several
        environments, number i listens at PORT + i, or where PATH has {number}.
    key_file: the file with the key, made if it does not exist; else the key is in EXARL_JOIN_KEY.
    timeout: seconds from an action to what the program says next; null: as long as it lives.
    start_timeout: seconds until the program must have connected; null: any time.
    work_dir, input_files, keep_folders: where a command runs, as for ExaExternal-v0.
    """

    _wanted = Extra.INFO | Extra.LOOP

    def __init__(
        self,
        command: str | None = None,
        address: str | None = None,
        key_file: str | None = None,
        timeout: float | None = None,
        start_timeout: float | None = 60.0,
        work_dir: str | None = None,
        input_files: str | None = None,
        keep_folders: bool = False,
        *,
        context: EnvContext,
    ) -> None:
        if (command is None) == (address is None):
            raise ValueError(
                "give 'command' (EXARL starts it) or 'address' (it connects by itself)"
            )
        check_seconds(timeout=timeout, start_timeout=start_timeout)
        self._launch = None
        if command is not None:
            words = split_command(command)
            self._launch = launch(words, "socket", work_dir, input_files, keep_folders, context)
        self._address: str | None = None
        self._timeouts = Timeouts(timeout, timeout, start_timeout)
        self._door: Door | None = None
        if address is not None:
            self._address = place_of(address, context.index)
            self._door = Door(self._address, key_at(self._address, key_file))
            weakref.finalize(self, self._door.close)
        self._running = False
        self._present: Seen | None = None
        self._taken: np.ndarray | None = None
        self._begin()
        if Extra.LOOP not in self._extras:
            self.close()
            raise ValueError(
                f"{self._peer()} does not use the client library: train it with ExaExternal-v0"
            )

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Seen, Info]:
        if self._running and self._connected:
            if self._address is not None and self._present is not None:
                return self._present, {}
            self._hang_up()
            if seed is None:  # a new process does not continue the random numbers
                seed = int(self.np_random.integers(1 << 31))
        self._running = False
        known = self._connected
        try:
            self._present, info = super().reset(seed=seed)
        except EnvironmentFailure as error:
            if self._address is None or not known or error.kind != "crash":
                raise
            # The client left after its last episode: another one may come.
            self._present, info = super().reset(seed=seed)
        self._running = True
        return self._present, info

    def step(self, action: object) -> tuple[Seen, float, bool, bool, Info]:
        self._taken = None
        self._present, reward, terminated, truncated, info = super().step(action)
        self._running = not (terminated or truncated)
        if self._taken is not None:
            discrete = isinstance(self.action_space, spaces.Discrete)
            info = {**info, TAKEN: int(self._taken) if discrete else self._taken}
        return self._present, reward, terminated, truncated, info

    @property
    def has_state(self) -> bool:
        """Of a program that has connected, nothing is kept: its episode cannot be played again."""
        return self._address is not None

    def get_state(self) -> Arrays:
        return {}

    def close(self) -> None:
        super().close()
        if self._door is not None:
            self._door.close()

    def _start(self) -> Program | Caller:
        if self._launch is not None:
            return self._launch.start()
        assert self._door is not None
        return Caller(self._door)

    def _exchange(self, asked: Kind, data: bytes) -> bytes:
        answer = super()._exchange(asked, data)
        if answer[_KIND_AT] != Kind.ACTED:
            return answer
        _, arrays, session = decode(answer)
        if not arrays:
            raise ProtocolError("an ACTED holds an action and a RESULT")
        check_value(self.action_space, arrays[0], "the action taken")
        self._taken = arrays[0].copy()
        return encode(Message(Kind.RESULT, arrays[1:], session))

    def _peer(self, asked: Kind | None = None) -> str:
        if self._launch is not None:
            return f"'{self._launch.command[0]}'"
        return f"the client at {self._address}"
