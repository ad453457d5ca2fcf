"""``exarl serve-env``: environments for clients that talk over ZeroMQ.

Each client gets a session, which is a program that talks the same protocol over a Unix socket
(``exarl.envs.external.host``, or any other): environments run side by side, and a crash affects only
one. The server itself only looks at messages and passes them on, so it always answers at once.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from exarl.envs.external.connections import Connections
from exarl.envs.external.extras import Extra, hello_arrays, read_extras, read_hello
from exarl.envs.external.program import Program
from exarl.envs.external.protocol import (
    Fault,
    Kind,
    Message,
    ProtocolError,
    decode,
    encode,
    error_message,
    pong_message,
    read_ping,
    with_session,
)
from exarl.envs.external.secure import Keys, check_address, load_zmq
from exarl.envs.external.session import Limits, Session, check_request
from exarl.envs.external.spaces import read_spaces
from exarl.envs.external.unix_address import UnixAddress
from exarl.envs.guard import in_words
from exarl.errors import ConfigError, EnvironmentFailure

log = logging.getLogger(__name__)

TICK = 0.05
"""Seconds between two looks at what else there is to do."""
_PROMPT = 5.0  # seconds that a program may take over the middle of a message
_GRACE = 2.0  # seconds from SIGTERM to SIGKILL, for a program that does not go
_ZAP = "inproc://zeromq.zap.01"  # where ZeroMQ asks whether a client may come in


class Server:
    """Listens at ``address`` and starts ``command`` for every client."""

    def __init__(
        self,
        command: Sequence[str],
        address: str,
        *,
        keys: Keys | None = None,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self._zmq = zmq = load_zmq()
        self._command, self._limits, self._keys = command, limits, keys
        self._sessions: dict[int, Session] = {}
        self._leaving: dict[Program, float] = {}  # dismissed, and until when they may stay
        self._told: set[Program] = set()  # those of them that were sent a signal
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._gate: Any = None
        if keys is not None:
            self._gate = self._context.socket(zmq.REP)
            self._gate.bind(_ZAP)
            self._poller.register(self._gate, zmq.POLLIN)
        self._socket: Any = self._context.socket(zmq.ROUTER)
        self._poller.register(self._socket, zmq.POLLIN)
        self._file: UnixAddress | None = None
        self.address = self._bind(check_address(address, keys))
        self._connections = Connections(zmq, self._socket, self.address, limits.max_bytes)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until ``stopped`` says so, which is called several times per second."""
        due = 0.0
        while not stopped():
            ready = dict(self._poller.poll(TICK * 1000))
            if self._gate in ready:
                self._admit()
            if self._socket in ready:
                self._receive()
            for session in list(self._sessions.values()):
                if session.program.fileno() in ready:
                    with self._at_its_own_cost(session):
                        self._hear(session)
            if time.monotonic() >= due:
                due = time.monotonic() + TICK
                self._tidy()

    def close(self) -> None:
        """End every session, telling the clients that wait for an answer."""
        for session in list(self._sessions.values()):
            self._end(session, "the server was stopped")
        while self._leaving:
            self._see_off()
            time.sleep(0.02)
        if self._file is not None:
            self._file.remove()
        self._context.destroy(linger=500)

    @property
    def sessions(self) -> int:
        """How many there are."""
        return len(self._sessions)

    # -- clients --------------------------------------------------------------------------------

    def _bind(self, address: str) -> str:
        zmq = self._zmq
        options = {
            zmq.MAXMSGSIZE: self._limits.max_bytes,
            zmq.ROUTER_MANDATORY: 1,  # an answer to a client that is gone is an error
            zmq.RCVHWM: 4,
            zmq.SNDHWM: 100,
            zmq.HEARTBEAT_IVL: 10_000,
            zmq.HEARTBEAT_TIMEOUT: 30_000,
            zmq.IPV6: int("[" in address),
        }
        if self._keys is not None:
            options |= {zmq.CURVE_SERVER: 1, zmq.CURVE_SECRETKEY: self._keys.secret}
            options |= {zmq.CURVE_PUBLICKEY: self._keys.public}
        try:
            if address.startswith("ipc://"):
                self._file = UnixAddress(address.removeprefix("ipc://"))
                options |= {zmq.USE_FD: self._file.descriptor}
            for option, value in options.items():
                self._socket.set(option, value)
            self._socket.bind(address)
        except (zmq.ZMQError, ConfigError) as error:
            self._context.destroy(linger=0)
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"cannot listen at {address}: {error}") from error
        endpoint: bytes = self._socket.get(zmq.LAST_ENDPOINT)
        return endpoint.rstrip(b"\0").decode()

    def _admit(self) -> None:
        """ZeroMQ's question (RFC 27) whether a client may come in: the one with the right key."""
        from zmq.utils import z85

        assert self._keys is not None
        version, request, _, _, _, mechanism, *credentials = self._gate.recv_multipart()
        known = [z85.decode(self._keys.other)]
        welcome = mechanism == b"CURVE" and credentials == known
        answer = (b"200", b"OK") if welcome else (b"400", b"unknown key")
        self._gate.send_multipart([version, request, *answer, b"", b""])

    def _receive(self) -> None:
        """Take what has come, a round of messages at most, so that answers get their turn."""
        for _ in range(32):
            try:
                frames = self._socket.recv_multipart(self._zmq.DONTWAIT, copy=False)
            except self._zmq.Again:
                return
            with suppress(self._zmq.ZMQError):  # of a connection that is gone
                self._connections.delivered(frames[-1].get(self._zmq.SRCFD))
            # A REQ socket puts an empty frame between its identity and the message.
            if len(frames) > 3 or (len(frames) == 3 and len(frames[1])):
                continue
            *envelope, data = [frame.bytes for frame in frames]
            try:
                self._request(envelope, data, decode(data))
            except ProtocolError as error:
                self._answer(envelope, error_message(Fault.MALFORMED, str(error)))
            except Exception as error:
                log.exception("a request could not be answered")
                text = f"the server could not do it: {in_words(error)}"
                self._answer(envelope, error_message(Fault.FAILED, text))

    def _request(self, envelope: list[bytes], data: bytes, message: Message) -> None:
        if message.kind is Kind.HELLO:
            self._begin(envelope, data, message)
            return
        session = self._sessions.get(message.session)
        if session is None:
            self._stranger(envelope, message)
            return
        session.envelope, session.heard = envelope, time.monotonic()
        if message.kind is Kind.PING:
            working = bool(session.waiting)
            self._answer(envelope, pong_message(read_ping(message), working, session.id))
        elif message.kind is Kind.CLOSE:
            self._end(session)
        else:
            check_request(session, message)
            self._forward(session, data)

    def _stranger(self, envelope: list[bytes], message: Message) -> None:
        """A message without a session: a client whose environment is being started, or a lost one."""
        if message.kind is Kind.PING and not message.session:
            working = any(s.waiting and s.envelope == envelope for s in self._sessions.values())
            self._answer(envelope, pong_message(read_ping(message), working))
        elif message.kind is not Kind.CLOSE:
            text = (
                "the server does not know this session: its environment ended, it was idle for too"
                " long, or the server was started again"
            )
            self._answer(envelope, error_message(Fault.NO_SESSION, text, message.session))

    def _begin(self, envelope: list[bytes], data: bytes, message: Message) -> None:
        """A new session for this client."""
        wanted, order = read_hello(message)
        if order:
            raise ProtocolError("a HELLO to a server holds no text")
        if Extra.MEMORY in wanted:  # a client shares no memory with a program of this server
            data = encode(Message(Kind.HELLO, hello_arrays(wanted & ~Extra.MEMORY)))
        if self.sessions >= self._limits.sessions:
            self._probe(0.0)
        # Programs that are on their way out count as well: there are never more than twice as many.
        crowded = self.sessions + len(self._leaving) >= 2 * self._limits.sessions
        if crowded or self.sessions >= self._limits.sessions:
            text = f"the server holds {self.sessions} environments already, which is its limit"
            if crowded:
                text = "the server still ends environments of earlier clients: try again"
            self._answer(envelope, error_message(Fault.FULL, text))
            return
        try:
            program = Program(self._command, max_bytes=self._limits.max_bytes, last_moment=0.2)
        except EnvironmentFailure as error:
            self._answer(envelope, error_message(Fault.FAILED, str(error)))
            return
        id = secrets.randbits(63) | 1
        session = Session(id, envelope, program, with_session(data, id))
        self._sessions[id] = session
        self._poller.register(program.fileno(), self._zmq.POLLIN)
        log.info("session %x begins (%d of %d)", id, self.sessions, self._limits.sessions)

    def _answer(self, envelope: list[bytes], message: Message | bytes) -> None:
        data = message if isinstance(message, bytes) else encode(message)
        # A client that is gone or takes no answers has itself to blame.
        with suppress(self._zmq.ZMQError):
            self._socket.send_multipart([*envelope, data], self._zmq.DONTWAIT)

    # -- programs -------------------------------------------------------------------------------

    def _forward(self, session: Session, data: bytes) -> None:
        session.waiting = data
        try:
            session.program.send(data, _PROMPT)
        except (EOFError, TimeoutError) as error:
            self._end(session, str(session.program.failure(error)))

    def _accept(self, session: Session) -> None:
        """Let the program in if it has come, and give it the client's HELLO."""
        program = session.program
        before = program.fileno()
        try:
            connected = program.accept(0.0)
        except EnvironmentFailure as error:
            self._end(session, str(error))
            return
        if connected:
            self._poller.unregister(before)
            self._poller.register(program.fileno(), self._zmq.POLLIN)
            self._forward(session, session.waiting)

    def _hear(self, session: Session) -> None:
        """The program has connected, has answered, or is gone."""
        if not session.program.connected:
            self._accept(session)
            return
        try:
            data = session.program.receive(_PROMPT)
            message = decode(data)
            if not session.waiting or message.session != session.id:
                raise ProtocolError("an answer without a request")
            if message.kind is Kind.SPACES:
                session.spaces, session.extras = read_spaces(message), read_extras(message)[0]
        except (EOFError, TimeoutError) as error:
            self._end(session, str(session.program.failure(error)))
            return
        except ProtocolError as error:
            self._end(session, str(error))
            return
        session.begun = session.begun or message.kind is Kind.OBSERVATION
        session.waiting, session.heard = b"", time.monotonic()
        self._answer(session.envelope, data)

    @contextmanager
    def _at_its_own_cost(self, session: Session) -> Iterator[None]:
        """Whatever goes wrong within ends this session, and nothing else."""
        try:
            yield
        except Exception as error:
            log.exception("session %x fails", session.id)
            if session.id in self._sessions:
                self._end(session, f"the server could not do it: {in_words(error)}")

    def _end(self, session: Session, why: str = "") -> None:
        """Close a session; a client that waits for an answer receives ``why``."""
        del self._sessions[session.id]
        with suppress(KeyError):
            self._poller.unregister(session.program.fileno())
        if session.waiting and why:
            log.warning("session %x ends: %s", session.id, why)
            self._answer(session.envelope, error_message(Fault.FAILED, why, session.id))
        session.program.dismiss()
        patience = 0.0 if session.waiting else session.program.patience  # a busy one hears nothing
        self._leaving[session.program] = time.monotonic() + patience
        log.info("session %x ended (%d left)", session.id, self.sessions)

    # -- time -----------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """End what did not start, what is idle, and what belongs to clients that are gone."""
        now = time.monotonic()
        self._see_off()
        for session in list(self._sessions.values()):
            silent = now - session.heard
            if session.spaces is None and now - session.started > self._limits.start_s:
                self._end(session, f"the environment took over {self._limits.start_s:g} s to start")
            elif not session.program.connected:
                with self._at_its_own_cost(session):
                    self._accept(session)  # notices a program that ended instead
            elif not session.waiting and silent > self._limits.idle_s:
                self._end(session)
        self._probe(self._limits.probe_s)
        with suppress(OSError):  # no descriptor is left to look with
            self._connections.check()

    def _see_off(self) -> None:
        """Forget the programs that have gone; end those that will not, without waiting for them."""
        for program, until in list(self._leaving.items()):
            if program.running and time.monotonic() < until:
                continue
            if program.running and program not in self._told:
                program.terminate()
                self._told.add(program)
                self._leaving[program] = time.monotonic() + _GRACE
            else:
                program.kill()
                self._told.discard(program)
                del self._leaving[program]

    def _probe(self, silent_s: float) -> None:
        """End the sessions of clients whose connection is gone, if they have been silent for long.

        An unasked PONG shows it: ZeroMQ has nowhere to send it. Clients ignore it.
        """
        now = time.monotonic()
        for session in list(self._sessions.values()):
            if now - max(session.heard, session.probed) < silent_s:
                continue
            session.probed = now
            data = encode(pong_message(0, bool(session.waiting), session.id))
            try:
                self._socket.send_multipart([*session.envelope, data], self._zmq.DONTWAIT)
            except self._zmq.Again:
                continue  # it is there, though it takes nothing
            except self._zmq.ZMQError:
                log.info("the client of session %x is gone", session.id)
                self._end(session)
