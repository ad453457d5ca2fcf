r"""What an acting rank costs: seconds from its start to its first environment step, and its memory.

    python benchmarks/actor_start.py [--repeat 5] [--agent A] [--env E]

Runs a real job, ``mpiexec -n 2 exarl train``, and looks at rank 1, the actor. Nothing in EXARL knows
of it: a ``sitecustomize`` on the path of the job notes, in the actor alone, when the first environment
was made, reset and stepped, and what memory the process had then and 500 steps later. Times count
from the start of the process by the kernel's clock (/proc/self/stat), so the interpreter is in them;
mpiexec itself is not. Private memory is Private_Clean + Private_Dirty of /proc/self/smaps_rollup: what
one more actor on the node costs, as shared pages of libraries are there once.

Prints the median of all repetitions, and whether the targets of EXARL's design hold: a first step
within 1.0 s, and 50 MB of private memory. ``waiting`` is the time between the made environment and its
first reset, in which the actor waits for its learner. ``--imports`` adds an actor's slowest imports.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET_S, TARGET_MB = 1.0, 50.0
STEPS_LATER = 500
MPIEXEC = Path(sys.executable).parent / "mpiexec"

PROBE = '''
import os

def age():
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime") as file:
        return float(file.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")

def memory():
    wanted = {"Rss": 0, "Pss": 0, "Private_Clean": 0, "Private_Dirty": 0}
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name in wanted:
                wanted[name] = int(rest.split()[0]) / 1000 * 1.024
    private = wanted["Private_Clean"] + wanted["Private_Dirty"]
    return {"rss": wanted["Rss"], "pss": wanted["Pss"], "private": private}

def watch(make):
    import functools, json, sys
    notes = {"imported": age(), "jax": False, "steps": 0}

    @functools.wraps(make)
    def wrapped(*args, **options):
        env = make(*args, **options)
        notes.setdefault("made", age())
        reset, step = env.reset, env.step

        def first_reset(*a, **o):
            notes.setdefault("reset", age())
            return reset(*a, **o)

        def counted(action):
            notes["steps"] += 1
            if notes["steps"] == 1:
                notes["step"], notes["first"] = age(), memory()
            if notes["steps"] == LATER:
                notes["later"], notes["jax"] = memory(), "jax" in sys.modules
                with open(os.environ["EXARL_PROBE"], "w") as file:
                    json.dump(notes, file)
            return step(action)

        env.reset, env.step = first_reset, counted
        return env

    return wrapped

class Finder:
    """Wraps gymnasium.make as soon as Gymnasium is imported, and imports nothing before."""

    def find_spec(self, name, path=None, target=None):
        if name != "gymnasium":
            return None
        import importlib.machinery, sys
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def and_watch(module):
            execute(module)
            module.make = watch(module.make)

        spec.loader.exec_module = and_watch
        return spec

if os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1":
    import sys
    sys.meta_path.insert(0, Finder())
'''


def measure(folder: Path, number: int, words: list[str]) -> dict[str, float]:
    """One job; what its actor noted."""
    notes = folder / f"notes-{number}.json"
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "EXARL_PROBE": str(notes)}
    job = [str(MPIEXEC), "-n", "2", sys.executable, "-m", "exarl", "train"]
    job += [*words, "--run_dir", str(folder / f"run-{number}"), "--total_steps", "2000"]
    subprocess.run(job, env=environment, check=True, capture_output=True, timeout=300)
    found = json.loads(notes.read_text())
    return {
        "environment made": found["made"],
        "first reset": found["reset"],
        "first step": found["step"],
        "waiting": found["reset"] - found["made"],
        "private, first step": found["first"]["private"],
        "private, later": found["later"]["private"],
        "proportional, later": found["later"]["pss"],
        "resident, later": found["later"]["rss"],
        "imports jax": float(found["jax"]),
    }


def imports(shown: int = 15) -> None:
    """The slowest imports of what an actor needs, by themselves and with what they import."""
    code = (
        "import exarl.cli.train, exarl.run.experiment, exarl.agents.dqn, exarl.networks.mlp\n"
        "import exarl.workflows.sync, mpi4py.MPI, safetensors.numpy, gymnasium\n"
        "gymnasium.make('CartPole-v1')"
    )
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    rows = [line.split("|") for line in ended.stderr.splitlines() if line.count("|") == 2]
    timed = [(int(row[1]), int(row[0].split(":")[1]), row[2].strip()) for row in rows[1:]]
    print("\nimport                                    with its own   alone (ms)")
    for total, alone, name in sorted(timed, reverse=True)[:shown]:
        print(f"{name:42} {total / 1000:11.1f} {alone / 1000:11.1f}")


def report(results: list[dict[str, float]]) -> bool:
    """Print the medians; whether the targets hold."""
    medians = {name: statistics.median(r[name] for r in results) for name in results[0]}
    for name, value in medians.items():
        unit = "s" if name in ("environment made", "first reset", "first step", "waiting") else "MB"
        if name != "imports jax":
            every = " ".join(f"{r[name]:.2f}" for r in results)
            print(f"{name:22} {value:8.2f} {unit:2}   ({every})")
    print(f"{'imports jax':22} {'yes' if medians['imports jax'] else 'no':>8}")
    seconds, private = medians["first step"], medians["private, later"]
    print(
        f"\nfirst step      {seconds:6.2f} s   target {TARGET_S:.1f} s   {hold(seconds, TARGET_S)}"
    )
    print(
        f"private memory  {private:6.1f} MB  target {TARGET_MB:.0f} MB   {hold(private, TARGET_MB)}"
    )
    return seconds <= TARGET_S and private <= TARGET_MB and not medians["imports jax"]


def hold(value: float, target: float) -> str:
    return "holds" if value <= target else "MISSED"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--agent", default="DQN-v0")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--workflow", default="sync")
    parser.add_argument("--imports", action="store_true", help="show the slowest imports too")
    options = parser.parse_args()
    words = ["--agent", options.agent, "--env", options.env, "--workflow", options.workflow]
    with tempfile.TemporaryDirectory(prefix="exarl-start-") as scratch:
        folder = Path(scratch)
        (folder / "sitecustomize.py").write_text(PROBE.replace("LATER", str(STEPS_LATER)))
        measure(folder, 0, words)  # once to have everything in the page cache
        results = [measure(folder, n + 1, words) for n in range(options.repeat)]
    good = report(results)
    if options.imports:
        imports()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
