"""``exarl serve-env`` on the command line."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.jobs import EXARL, Job, wait_until

pytest.importorskip("zmq")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["serve-env"], ["which environment id?"]),
        (["serve-env", "CartPole"], ["did you mean 'CartPole-v1'?"]),
        (["serve-env", "CartPole-v1", "--nope", "1"], ["unknown parameter 'nope'"]),
        (["serve-env", "CartPole-v1", "--bind", "tcp://0.0.0.0:1"], ["needs keys", "--make-keys"]),
        (["serve-env", "CartPole-v1", "--bind", "here"], ["an address is tcp://HOST:PORT"]),
        (["serve-env", "CartPole-v1", "--keys", "none"], ["cannot read keys from none"]),
        (["serve-env", "CartPole-v1", "--max-sessions", "0"], ["at least 1"]),
        (["serve-env", "CartPole-v1", "--idle", "soon"], ["idle is a whole number"]),
        (["serve-env", "--make-keys", "keys", "more"], ["unexpected 'more'"]),
    ],
)
def test_a_mistake_is_one_line(exarl: Any, words: list[str], parts: list[str]) -> None:
    exarl(*words).refused(*parts)


def test_keys_are_made_once(exarl: Any, tmp_path: Path) -> None:
    answer = exarl("serve-env", "--make-keys", "keys")
    assert answer.code == 0
    for name in ("server.key", "client.key"):
        path = Path.cwd() / "keys" / name
        assert path.stat().st_mode & 0o777 == 0o600
        assert str(Path("keys") / name) in answer.out
    exarl("serve-env", "--make-keys", "keys").refused("there already")


def test_without_zeromq_it_says_what_to_install(
    exarl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    exarl("serve-env", "CartPole-v1").refused("exarl[remote]")
    exarl("check-env", "ExaRemote-v0").refused("exarl[remote]")


def test_ctrl_c_stops_it_and_its_environments(tmp_path: Path) -> None:
    """SIGTERM does the same: tests/faults/test_fuzz_server.py."""
    words = ["serve-env", "CartPole-v1", "--bind", f"ipc://{tmp_path}/socket"]
    job = Job([*EXARL, *words])
    try:
        wait_until((tmp_path / "socket").exists)
        client = (
            f"import exarl.envs.external.remote as r; e = r.RemoteEnv('ipc://{tmp_path}/socket');"
            "e.reset(seed=1); print('playing', flush=True); import time; time.sleep(60)"
        )
        player = subprocess.Popen([sys.executable, "-c", client], stdout=subprocess.PIPE)
        assert player.stdout is not None
        assert player.stdout.readline() == b"playing\n"
        assert len(job.pids()) == 3, "the server, a program and its keeper"
        job.send(signal.SIGINT)
        ended = job.wait(20)  # nothing is left
        player.kill()
        player.wait()
        player.stdout.close()
    finally:
        job.kill()
    assert ended.code == 0
    assert ended.out.splitlines() == [f"serving CartPole-v1 at ipc://{tmp_path}/socket", "stopped"]
