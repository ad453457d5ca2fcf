"""The C header, compiled and run: C99, C++ and Fortran."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.policies import POLICIES, observations, recurrent

from exarl.export import Policy, evaluate, to_c
from exarl.export.c_header import c_caller, fortran_interface

CC, CXX, FORTRAN = (shutil.which(name) for name in ("cc", "c++", "gfortran"))
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2")
EPISODE = 125

MAIN = """\
#include <stdio.h>
#include "pilot.h"

int main(void)
{
    float observation[PILOT_INPUTS], action[PILOT_OUTPUTS];
    STATE
    for (int step = 0; fread(observation, sizeof observation, 1, stdin) == 1; step++) {
        RESET
        pilot_act(ARGUMENT observation, action);
        fwrite(action, sizeof action, 1, stdout);
    }
    return 0;
}
"""
SHORT = """\
#include "pilot.h"
int main(void) { return PILOT_INPUTS > 0 ? 0 : 1; }
"""
FORTRAN_MAIN = """\
program main
  use, intrinsic :: iso_c_binding, only: c_float
  implicit none
{interface}
  real(c_float) :: observation({inputs}), action({outputs})
  integer :: status
  do
    read (*, *, iostat=status) observation
    if (status /= 0) exit
    call pilot_call(observation, action)
    write (*, *) action
  end do
end program
"""


def main_of(policy: Policy) -> str:
    """A program that answers observations with actions, in bytes."""
    words = ("", "", "")
    if policy.recurrent:
        reset = f"if (step % {EPISODE} == 0) pilot_reset(&state);"
        words = ("pilot_state state;", reset, "&state,")
    text = MAIN
    for name, word in zip(("STATE", "RESET", "ARGUMENT"), words, strict=True):
        text = text.replace(name, word)
    return text


def compiled(folder: Path, compiler: str, *flags: str, **sources: str) -> Path:
    """The program made of ``sources`` (name_suffix -> text)."""
    paths = []
    for name, text in sources.items():
        paths.append(folder / ".".join(name.rsplit("_", 1)))
        paths[-1].write_text(text)
    files = [str(path) for path in paths if path.suffix != ".h"]
    command = [compiler, *flags, *files, "-o", str(folder / "program"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "program"


def played(policy: Policy, seen: np.ndarray) -> np.ndarray:
    """What ``evaluate`` says, with an episode's end every so often."""
    if not policy.recurrent:
        return evaluate(policy, seen)
    parts = [evaluate(policy, seen[at : at + EPISODE]) for at in range(0, len(seen), EPISODE)]
    return np.concatenate(parts)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_header_acts_as_the_policy_does(name: str, language: str, tmp_path: Path) -> None:
    compiler, standard = (CC, "-std=c99") if language == "c" else (CXX, "-std=c++11")
    if compiler is None:
        pytest.skip(f"no compiler for {language}")
    policy = POLICIES[name]()
    program = compiled(
        tmp_path,
        compiler,
        standard,
        *STRICT,
        pilot_h=to_c(policy, "pilot"),
        **{"main_c" if language == "c" else "main_cpp": main_of(policy)},
    )
    seen = observations(policy, 1000)
    done = subprocess.run([program], input=seen.tobytes(), capture_output=True, check=True)
    found = np.frombuffer(done.stdout, np.float32).reshape(1000, policy.outputs)
    np.testing.assert_allclose(found, played(policy, seen), rtol=0, atol=1e-5)


@pytest.mark.skipif(CC is None, reason="no C compiler")
@pytest.mark.parametrize("name", POLICIES)
def test_an_unused_header_and_its_caller_compile(name: str, tmp_path: Path) -> None:
    policy = POLICIES[name]()
    sources = {"main_c": SHORT, "caller_c": c_caller(policy, "pilot")}
    compiled(tmp_path, str(CC), "-std=c99", *STRICT, pilot_h=to_c(policy, "pilot"), **sources)


@pytest.mark.skipif(FORTRAN is None or CC is None, reason="no gfortran")
@pytest.mark.parametrize("name", POLICIES)
def test_fortran_calls_it(name: str, tmp_path: Path) -> None:
    policy = POLICIES[name]()
    text = FORTRAN_MAIN.format(
        interface=fortran_interface(policy, "pilot"), inputs=policy.inputs, outputs=policy.outputs
    )
    sources = {"caller_c": c_caller(policy, "pilot"), "main_f90": text}
    program = compiled(tmp_path, str(FORTRAN), pilot_h=to_c(policy, "pilot"), **sources)
    seen = observations(policy, 20)
    lines = "\n".join(" ".join(map(str, row.tolist())) for row in seen)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    found = np.array(done.stdout.split(), float).reshape(20, policy.outputs)
    np.testing.assert_allclose(found, evaluate(policy, seen), rtol=1e-5, atol=1e-5)


def test_the_header_tells_how_it_is_used() -> None:
    text = to_c(recurrent(), "pilot")
    for caller in (c_caller(recurrent(), "pilot"), fortran_interface(recurrent(), "pilot")):
        for line in caller.splitlines():
            assert line.rstrip() in text
    assert "pilot_reset(&state);" in text
    assert max(map(len, text.splitlines())) < 200


@pytest.mark.parametrize("name", ["", "2nd", "a-b", "a b", "_a", "ä"])
def test_a_name_that_is_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="identifier"):
        to_c(recurrent(), name)
