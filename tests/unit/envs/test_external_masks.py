"""Programs in C and Fortran say which actions are allowed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.programs import CC, compiled, in_fortran

import exarl
from exarl.envs.external.env import HEADER, ExternalEnv
from exarl.envs.layout import apart

LOOP = """\
#include "exarl_env.h"
int main(void)
{
    double x[2] = {0, 0};
    const double low[2] = {-1, 0}, high[2] = {1e308 * 10, 9};
    int mask[3] = {1, 1, 0}, t = 0, forbidden = 0;
    exarl_env *env = exarl_open();
    if (!env) return 1;
    ABOUT
    exarl_box_observation(env, 2, low, high);
    exarl_discrete_action(env, 3);
    if (exarl_offer_mask(env)) return 1;
    for (;;) {
        int asked = exarl_wait(env), choice = exarl_choice(env);
        if (asked != EXARL_RESET && asked != EXARL_STEP) break;
        if (asked == EXARL_RESET) t = 0;
        else {
            if (!mask[choice]) exarl_fail(env, "that was forbidden");
            t++;
        }
        for (int i = 0; i < 3; i++) mask[i] = i != t % 3;
        if (exarl_action_mask(env, mask, 2) == 0) return 1; /* of another size */
        if (exarl_action_mask(env, mask, 3)) return 1;
        x[1] = t;
        if (asked == EXARL_RESET) exarl_observe(env, x);
        else if (mask[0] + mask[1] + mask[2] == 2) exarl_result(env, x, choice, t == 9, 0);
    }
    exarl_close(env);
    return forbidden;
}
"""


def program(folder: Path, about: str = "") -> str:
    source = folder / "masked.c"
    source.write_text(LOOP.replace("ABOUT", about))
    return compiled(source)


@pytest.mark.parametrize("about", ["", 'exarl_about(env, "reward", "kJ");'])
def test_a_mask_is_a_part_of_the_observation(tmp_path: Path, about: str) -> None:
    env = ExternalEnv(program(tmp_path, about))
    try:
        space: Any = env.observation_space
        own = space.original
        assert list(own.spaces) == ["observation", "action_mask"]
        np.testing.assert_array_equal(own["observation"].low, [-1, 0])
        np.testing.assert_array_equal(own["observation"].high, [np.inf, 9])
        assert env.describe() == ({"reward": "kJ"} if about else {})
        seen, mask = apart(space, env.reset(seed=1)[0])
        for t in range(1, 10):
            np.testing.assert_array_equal(seen, [0, t - 1])
            np.testing.assert_array_equal(mask, np.arange(3) != (t - 1) % 3)
            found, reward, *_ = env.step(np.int64(np.flatnonzero(mask)[-1]))
            assert reward == np.flatnonzero(mask)[-1]
            seen, mask = apart(space, found)
    finally:
        env.close()


def test_agents_choose_what_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program fails on a forbidden action."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = exarl.train(
        env="ExaExternal-v0",
        command=program(tmp_path),
        agent="Random-v0",
        total_steps=100,
        block_steps=50,
        progress=False,
    )
    assert result is not None
    policy = exarl.load(result.run_dir)
    assert policy.act(np.zeros(2), mask=[0, 0, 1]) == 2


def test_spaces_that_cannot_have_a_mask_are_complained_about(tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text(
        LOOP.replace("exarl_discrete_action(env, 3)", "exarl_box_action(env, 2, low, high)")
        .replace("ABOUT", "")
        .replace("exarl_open()", "(exarl_env *)calloc(1, sizeof(exarl_env))")
    )
    assert CC is not None
    words = [CC, "-I", str(HEADER.parent), str(source), "-o", str(tmp_path / "wrong")]
    subprocess.run(words, check=True)
    done = subprocess.run([tmp_path / "wrong"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "exarl_offer_mask: once, after a box" in done.stderr


def test_fortran_says_it_too(tmp_path: Path) -> None:
    source = tmp_path / "masked.f90"
    source.write_text("""\
program masked
  use exarl_env
  use, intrinsic :: iso_c_binding
  implicit none
  type(c_ptr) :: env
  real(c_double) :: x(1) = [0], low(1) = [0], high(1) = [1]
  integer(c_int) :: error
  env = exarl_open()
  call exarl_box_observation(env, 1, low, high)
  call exarl_discrete_action(env, 2)
  error = exarl_offer_mask(env)
  do
    select case (exarl_wait(env))
    case (exarl_reset)
      error = exarl_action_mask(env, [0, 1], 2)
      error = exarl_observe(env, x)
    case default
      exit
    end select
  end do
  call exarl_close(env)
end program
""")
    env = ExternalEnv(in_fortran(source))
    try:
        seen, mask = apart(env.observation_space, env.reset(seed=1)[0])
        assert (seen.tolist(), mask.tolist()) == ([0], [0, 1])
    finally:
        env.close()
