"""ExaExternal-v0: a program as the environment, well-behaved and otherwise."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from support.envs import DEEDS
from support.jobs import dead, wait_until
from support.programs import (
    CC,
    CXX,
    EXAMPLES,
    HOST,
    cartpole,
    compiled,
    in_fortran,
    subject,
)

from exarl.envs import make_env
from exarl.envs.child import scrubbed
from exarl.envs.external.env import HEADER, ExternalEnv, split_command
from exarl.errors import ConfigError, EnvironmentFailure

Make = Callable[..., ExternalEnv]


@pytest.fixture
def external() -> Iterator[Make]:
    """``external(command, ...)``, closed at the end."""
    made: list[ExternalEnv] = []

    def make(command: str, **parameters: Any) -> ExternalEnv:
        made.append(ExternalEnv(command, **parameters))
        return made[-1]

    yield make
    for env in made:
        env.close()


def pid_of(env: ExternalEnv) -> int:
    return env._program._process.pid


# -- programs that do as they should -----------------------------------------------------------------


@pytest.mark.parametrize("transport", ["socket", "stdio"])
def test_the_cart_in_c_moves_as_gymnasiums(external: Make, transport: str) -> None:
    env = external(cartpole(), transport=transport)
    other = CartPoleEnv()
    rng = np.random.default_rng(3)
    for seed in range(5):
        start, _ = env.reset(seed=seed)
        assert (np.abs(start) <= 0.05).all()
        other.reset(seed=0)
        other.state = start
        ended = False
        while not ended:
            action = int(rng.integers(2))
            seen, reward, ended, cut, _ = env.step(action)
            expected, same_reward, same_end, *_ = other.step(action)  # type: ignore[no-untyped-call]
            np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-6)
            assert (reward, ended, cut) == (same_reward, same_end, False)


def test_a_python_environment_is_the_same_inside_and_outside(external: Make) -> None:
    env = external(" ".join([*HOST, "Pendulum-v1", "'{\"g\": 5.0}'"]))
    inside, _ = make_env("Pendulum-v1", {"g": 5.0})
    assert (env.observation_space, env.action_space) == (
        inside.observation_space,
        inside.action_space,
    )
    one, other = env.reset(seed=4)[0], inside.reset(seed=4)[0]
    for _ in range(200):
        np.testing.assert_array_equal(one, other)
        action = inside.action_space.sample()
        one, *rest = env.step(action)
        other, *expected = inside.step(action)
        assert rest[:2] == expected[:2]
    assert rest[2], "the host keeps the registration's limit of 200 steps"


def test_the_seed_arrives_and_none_is_minus_one(external: Make) -> None:
    env = external(subject())
    assert env.reset(seed=2**40 + 1)[0].tolist() == [0, 1, 2**40 + 1]
    assert env.reset()[0].tolist() == [0, 2, -1]
    assert env.step(3)[1] == 3.0


def test_it_runs_in_its_folder_and_its_output_is_kept_there(external: Make, tmp_path: Path) -> None:
    env = external(subject("print", "3"), work_dir=str(tmp_path / "a" / "b"))
    assert Path(f"/proc/{pid_of(env)}/cwd").resolve() == tmp_path / "a" / "b"
    env.close()
    (log,) = (tmp_path / "a" / "b").iterdir()
    assert log.read_text().splitlines() == ["line 0", "line 1", "line 2"]


def test_printing_does_not_disturb_the_conversation_over_stdio(
    external: Make, tmp_path: Path
) -> None:
    env = external(subject("exit", "2"), transport="stdio", work_dir=str(tmp_path))
    assert env.reset(seed=1)[0].tolist() == [0, 1, 1]
    assert env.step(4)[1] == 4.0
    with pytest.raises(EnvironmentFailure, match=r"exit code 3.*diverged: residual 1e9"):
        env.step(0)


def test_the_address_may_be_a_word_of_the_command(external: Make, tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text(f"#!/bin/sh\nunset EXARL_ADDRESS\nEXARL_ADDRESS=$1 exec {subject()}\n")
    script.chmod(0o755)
    assert external(f"{script} {{address}}").reset(seed=9)[0][2] == 9


def test_files_in_the_command_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "case.cfg").touch()
    monkeypatch.chdir(tmp_path)
    words = split_command("mpiexec -n 2 'a b' in/case.cfg in/none.cfg -x=in/case.cfg")
    path = str(tmp_path / "in" / "case.cfg")
    assert words == ["mpiexec", "-n", "2", "a b", path, "in/none.cfg", "-x=in/case.cfg"]


# -- programs that do not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("orders", "words"),
    [
        (("exit", "3"), ["exit code 3", "diverged: residual 1e9"]),
        (("crash", "2"), ["killed by SIGSEGV"]),
        (("garbage", "1"), ["broke the protocol"]),
        (("shape", "2"), ["broke the protocol", "(4,)"]),
        (("kind", "1"), ["broke the protocol", "OBSERVATION is no answer to STEP"]),
        (("fail", "2"), ["the solver diverged"]),
    ],
    ids=lambda value: value[0],
)
def test_what_went_wrong_is_said_and_a_reset_starts_anew(
    external: Make, orders: tuple[str, str], words: list[str]
) -> None:
    env = external(subject(*orders))
    env.reset(seed=1)
    for _ in range(int(orders[1]) - 1):
        env.step(0)
    with pytest.raises(EnvironmentFailure) as failure:
        env.step(0)
    for word in words:
        assert word in str(failure.value)
    assert failure.value.kind == ("crash" if orders[0] in ("exit", "crash") else "raise")
    with pytest.raises(EnvironmentFailure, match="reset before"):
        env.step(0)
    assert env.reset(seed=5)[0].tolist() == [0, 1, 5]


def test_a_program_that_hangs_is_given_up(external: Make) -> None:
    env = external(subject("hang", "1"), timeout=0.3)
    env.reset(seed=1)
    started = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"no answer within 0\.3 s") as failure:
        env.step(0)
    assert failure.value.kind == "timeout"
    assert time.monotonic() - started < 1.5


def test_a_slow_program_may_take_its_time(external: Make) -> None:
    env = external(subject("sleep", "700"), timeout=None, start_timeout=0.5)
    env.reset(seed=1)
    assert env.step(1)[0][0] == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/no/such/program", ["cannot start '/no/such/program'", "No such file"]),
        ("subject early 7", ["exit code 7", "no input file"]),
        ("subject badreset 1", []),
        ("", ["command is empty"]),
        ("a 'b", ["No closing quotation"]),
    ],
)
def test_a_program_that_does_not_start(command: str, words: list[str]) -> None:
    if command.startswith("subject"):
        command = subject(*command.split()[1:])
    if not words:
        env = ExternalEnv(command)
        with pytest.raises(EnvironmentFailure, match="the mesh is tangled"):
            env.reset(seed=1)
        env.close()
        return
    with pytest.raises(ConfigError) as refused:
        make_env("ExaExternal-v0", {"command": command})
    for word in ["'ExaExternal-v0' cannot be made", *words]:
        assert word in str(refused.value)


def test_a_program_that_never_connects() -> None:
    started = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"not connected within 0.3 s") as failure:
        ExternalEnv(subject("deaf", "1"), start_timeout=0.3)
    assert failure.value.kind == "timeout"
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "parameters",
    [{"transport": "pigeon"}, {"timeout": 0.0}, {"timeout": "soon"}, {"start_timeout": -1.0}],
)
def test_parameters_that_make_no_sense(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"transport|timeout"):
        ExternalEnv("true", **parameters)


# -- nothing is left ---------------------------------------------------------------------------------


def test_the_program_goes_with_the_environment() -> None:
    env = ExternalEnv(cartpole())
    first = pid_of(env)
    env.close()
    env.close()
    assert dead(first)
    env = ExternalEnv(cartpole())
    second = pid_of(env)
    del env
    gc.collect()
    wait_until(lambda: dead(second))


def test_a_hung_program_is_ended_too() -> None:
    env = ExternalEnv(subject("hang", "1"), timeout=0.1)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailure):
        env.step(0)
    pid = pid_of(env)
    env.close()
    assert dead(pid)


def test_the_program_does_not_outlive_a_killed_process() -> None:
    code = (
        "from exarl.envs.external.env import ExternalEnv\nimport sys, time\n"
        f"env = ExternalEnv({subject('hang', '1')!r})\nenv.reset(seed=1)\n"
        "print(env._program._process.pid, flush=True)\nenv.step(0)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert not dead(pid)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: dead(pid), 10)


HANDFUL = """
import exarl
from support.envs import Handful
from exarl.envs.external.host import host
host(Handful())
"""


@pytest.mark.parametrize("end", ["close", "killed"])
def test_daemons_of_a_program_go_with_it(
    external: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    (tmp_path / "solver.py").write_text(HANDFUL)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    env = external(f"{sys.executable} {tmp_path}/solver.py")
    env.reset(seed=1)
    _, pid, started = env.step(DEEDS.index("daemon"))[0].astype(int).tolist()
    assert not dead(pid) and not dead(started)
    if end == "close":
        env.close()
    else:
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EnvironmentFailure, match="killed by SIGKILL") as failure:
            env.step(0)
        assert failure.value.kind == "crash"
    wait_until(lambda: dead(pid) and dead(started), 10)


# -- the environment of a program --------------------------------------------------------------------


def test_the_mark_of_an_mpi_rank_is_taken_off() -> None:
    rank = {
        "PMI_RANK": "1", "PMI_FD": "6", "PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "2",
        "MPI_LOCALRANKID": "1", "HYDI_CONTROL_FD": "7", "SLURM_PROCID": "3", "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0", "PALS_RANKID": "1", "MV2_COMM_WORLD_RANK": "1", "PRTE_MCA_x": "1",
    }  # fmt: skip
    kept = {
        "PATH": "/bin", "SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]", "OMP_NUM_THREADS": "2",
        "SLURM_NTASKS": "4", "I_MPI_FABRICS": "shm", "MPICH_GPU_SUPPORT_ENABLED": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
    }  # fmt: skip
    assert scrubbed({**rank, **kept}) == kept


def test_a_program_starts_without_it(
    external: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PMI_RANK", "3")
    monkeypatch.setenv("EXARL_TEST_KEPT", "yes")
    env = external(cartpole(), work_dir=str(tmp_path))
    variables = Path(f"/proc/{pid_of(env)}/environ").read_bytes().decode().split("\0")
    assert "EXARL_TEST_KEPT=yes" in variables
    assert not [v for v in variables if v.startswith("PMI_")]
    assert os.environ["PMI_RANK"] == "3"


# -- the header --------------------------------------------------------------------------------------


def test_the_header_is_a_c_and_a_c_plus_plus_header(tmp_path: Path) -> None:
    if CC is None or CXX is None:
        pytest.skip("no compiler")
    text = '#include "exarl_env.h"\nint main(void) { return exarl_open() ? 1 : 0; }\n'
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(HEADER.parent)]
    for compiler, standard, suffix in ((CC, "c99", "c"), (CXX, "c++11", "cpp")):
        source = tmp_path / f"main.{suffix}"
        source.write_text(text)
        program = tmp_path / suffix
        words = [compiler, f"-std={standard}", *flags, str(source), "-o", str(program)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        alone = {k: v for k, v in os.environ.items() if k != "EXARL_ADDRESS"}
        said = subprocess.run([program], env=alone, capture_output=True, text=True, check=True)
        assert "EXARL_ADDRESS is not set" in said.stderr


def test_the_oscillator_in_fortran(external: Make) -> None:
    env = external(in_fortran(EXAMPLES / "oscillator.f90"))
    x, v = env.reset(seed=11)[0]
    assert (env.reset(seed=11)[0] == [x, v]).all()
    assert (env.reset(seed=12)[0] != [x, v]).all()
    x, v = env.reset(seed=11)[0]
    for force in (-1.0, 0.3, 1.0):
        seen, reward, *_ = env.step(np.array([force]))
        v += 0.05 * (force - x - 0.1 * v)
        x += 0.05 * v
        np.testing.assert_allclose(seen, [x, v], rtol=1e-12)
        assert reward == pytest.approx(-(x**2 + 0.1 * v**2 + 0.001 * force**2))


def test_a_folder_of_its_own_with_input_files(external: Make, tmp_path: Path) -> None:
    """Each program finds its own copies, whatever earlier ones did to theirs."""
    case, mesh, place = tmp_path / "case", tmp_path / "mesh.dat", tmp_path / "runs"
    (case / "sub").mkdir(parents=True)
    for path in (case / "a.cfg", case / "sub" / "b.cfg", mesh):
        path.write_text(path.name)
    options = {"input_files": f"{case}, {mesh}", "work_dir": str(place)}
    envs = [external(cartpole(), **options) for _ in range(2)]
    folders = sorted(place.iterdir())
    assert len(folders) == 2
    for folder in folders:
        held = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        assert {n for n in held if "log" not in n} == {"a.cfg", "mesh.dat", "sub/b.cfg"}
    (folders[0] / "a.cfg").write_text("changed")
    assert (case / "a.cfg").read_text() == "a.cfg"
    envs[0].close()
    assert len([*place.iterdir()]) == 1
    kept = external(cartpole(), **options, keep_folders=True)
    kept.close()
    envs[1].close()
    (folder,) = place.iterdir()
    assert (folder / "sub" / "b.cfg").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [({"input_files": "/no/such"}, "there is no"), ({"keep_folders": True}, "input_files makes")],
)
def test_input_files_that_cannot_be(external: Make, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        external(cartpole(), **options)


def test_an_image_of_bytes(external: Make, tmp_path: Path) -> None:
    source = tmp_path / "image.c"
    source.write_text(
        '#include "exarl_env.h"\n'
        "int main(void) {\n"
        "    static unsigned char x[2 * 3 * 4];\n"
        "    const int dims[3] = {2, 3, 4};\n"
        "    exarl_env *env = exarl_open();\n"
        "    const double low[2] = {-1, -2}, high[2] = {1, 2};\n"
        "    if (!env || exarl_array_observation(env, EXARL_UINT8, 3, dims, 0, 255)) return 1;\n"
        "    exarl_box_action(env, 2, low, high);\n"
        "    for (int i = 0; i < 24; i++) x[i] = (unsigned char)(10 * i);\n"
        "    for (;;) {\n"
        "        int asked = exarl_wait(env);\n"
        "        if (asked == EXARL_RESET) exarl_observe(env, x);\n"
        "        else if (asked == EXARL_STEP)\n"
        "            exarl_result(env, x, exarl_action(env, 0) + 10 * exarl_action(env, 1), 1, 0);\n"
        "        else break;\n"
        "    }\n"
        "    exarl_close(env);\n"
        "    return 0;\n"
        "}\n"
    )
    env = external(compiled(source))
    assert env.observation_space.dtype == np.uint8
    seen, _ = env.reset(seed=1)
    np.testing.assert_array_equal(seen, 10 * np.arange(24).reshape(2, 3, 4))
    assert env.action_space.high.tolist() == [1, 2]  # type: ignore[attr-defined]
    assert env.step(np.array([0.5, -0.25]))[1:4] == (-2.0, True, False)
