"""The command line. Only here do errors become exit codes and words go to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from exarl.errors import ConfigError, ExarlError, did_you_mean

USAGE = """\
EXARL: reinforcement learning whose environment is a simulation or an experiment.

usage: exarl COMMAND [--key value ...]

  train       train an agent                      exarl train --env CartPole-v1 --total_steps 60000
  resume      continue a run from its directory   exarl resume RUN [--total_steps 120000]
  sweep       which parameters are best?          exarl sweep --learning_rate 1e-4:1e-2:log ...
  evaluate    play a run's policy greedily        exarl evaluate RUN [--episodes 20] [--video F.gif]
  report      runs on one page, with curves       exarl report RUN... [--out report.html]
  watch       how a run is doing, here or away    exarl watch RUN [--once]
  export      a run's policy for other programs   exarl export RUN --format npz|onnx|c
  surrogate   a learnt plant for the Booster      exarl surrogate --data BOOSTR.csv --out FILE.npz
  list        agents, envs, workflows, models     exarl list agents
  describe    the parameters of a component       exarl describe DQN-v0
  bench       how fast is it, and why?            exarl bench --env CartPole-v1 [--procs 4]
  check-env   is this environment fit to train?   exarl check-env CartPole-v1
  serve-env   an environment for other programs   exarl serve-env CartPole-v1 [--bind tcp://...]
  slurm       a batch script for a cluster        exarl slurm --nodes 2 --time 1:00:00 -- train ...
  new         a package of one's own, to change   exarl new env my_env

'exarl COMMAND --help' says more. Under mpiexec or srun the same commands use all ranks;
'--procs N' starts mpiexec for you.
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0 done, 1 failed, 2 bad input, 128 + n stopped by signal n."""
    from exarl.comm.threads import limit_threads

    limit_threads(os.environ)
    words = list(sys.argv[1:] if words is None else words)
    try:
        return dispatch(words)
    except ExarlError as error:
        return complain(str(error), error.exit_code)
    except MemoryError as error:
        return complain(f"not enough memory: {error}", 1)
    except KeyboardInterrupt:
        return complain("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # a closed pager is no error
        return 0


def entry() -> None:
    """The installed ``exarl`` command; like ``python -m exarl`` it finds modules where one works."""
    sys.path.insert(0, "")
    sys.exit(main())


def dispatch(words: list[str]) -> int:
    """Hand the words after the command to it."""
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(USAGE)
        return 0
    if words[0] in ("-V", "--version"):
        from exarl import __version__

        sys.stdout.write(f"exarl {__version__}\n")
        return 0
    if words[0] not in COMMANDS:
        known = ", ".join(COMMANDS)
        hint = did_you_mean(words[0], COMMANDS) or f" (commands: {known})"
        raise ConfigError(f"unknown command '{words[0]}'{hint}")
    return COMMANDS[words[0]](words[1:])


def complain(message: str, code: int) -> int:
    """One line on standard error, from one rank of a job."""
    from exarl.comm.mpi import launched_ranks

    launched = launched_ranks()
    if launched is None or launched[0] == 0:
        words = (c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(message.split()))
        sys.stderr.write(f"exarl: {''.join(words)}\n")
    return code


def _train(words: list[str]) -> int:
    from exarl.launch import train

    return train.train(words)


def _resume(words: list[str]) -> int:
    from exarl.launch import train

    return train.resume(words)


def _sweep(words: list[str]) -> int:
    from exarl.launch import sweep

    return sweep.sweep(words)


def _evaluate(words: list[str]) -> int:
    from exarl.launch import evaluate

    return evaluate.evaluate(words)


def _report(words: list[str]) -> int:
    from exarl.launch import report

    return report.report(words)


def _watch(words: list[str]) -> int:
    from exarl.launch import watch

    return watch.watch(words)


def _export(words: list[str]) -> int:
    from exarl.launch import export

    return export.export(words)


def _surrogate(words: list[str]) -> int:
    from exarl.launch import surrogate

    return surrogate.surrogate(words)


def _list(words: list[str]) -> int:
    from exarl.launch import describe

    return describe.list_ids(words)


def _describe(words: list[str]) -> int:
    from exarl.launch import describe

    return describe.describe(words)


def _bench(words: list[str]) -> int:
    from exarl.launch import bench

    return bench.bench(words)


def _check_env(words: list[str]) -> int:
    from exarl.launch import check

    return check.check_env(words)


def _serve_env(words: list[str]) -> int:
    from exarl.launch import serve

    return serve.serve_env(words)


def _slurm(words: list[str]) -> int:
    from exarl.launch import slurm

    return slurm.slurm(words)


def _new(words: list[str]) -> int:
    from exarl.launch import new

    return new.new(words)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "resume": _resume,
    "sweep": _sweep,
    "evaluate": _evaluate,
    "report": _report,
    "watch": _watch,
    "export": _export,
    "surrogate": _surrogate,
    "list": _list,
    "describe": _describe,
    "bench": _bench,
    "check-env": _check_env,
    "serve-env": _serve_env,
    "slurm": _slurm,
    "new": _new,
}
