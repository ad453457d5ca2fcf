"""Two nodes on one machine: does a run use both, under Ray and under MPI?

    sudo python benchmarks/two_nodes.py [--total_steps 4000]

Makes two network namespaces joined by a cable, each with a host name of its own, as far apart as two
machines that share a disk (needs root and iproute2). Then trains twice, learner on the first node and
actors on both: `async` under mpiexec with a host file, and `elastic` on Ray, where the second node
joins while the run goes on. Prints which rank ran where, from the logs of the ranks, and steps/s.
Everything is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

NODES = {"exarl-a": "10.77.0.1", "exarl-b": "10.77.0.2"}
BIN = Path(sys.executable).parent
SHELL = """#!/bin/sh
# What ssh would be: run a command on the node with this address.
case "$1" in {cases} esac
shift
exec ip netns exec "$node" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$node" sh -c "$*"
"""


def sh(command: str) -> None:
    subprocess.run(command, shell=True, check=True)


def on(node: str, command: list[str]) -> list[str]:
    return [
        "ip", "netns", "exec", node, "unshare", "--uts",
        "sh", "-c", 'hostname "$0"; exec "$@"', node, *command,
    ]  # fmt: skip


def build() -> None:
    tear_down()
    for node in NODES:
        sh(f"ip netns add {node} && ip -n {node} link set lo up")
    a, b = NODES
    sh(f"ip link add veth-a netns {a} type veth peer name veth-b netns {b}")
    for node, address in NODES.items():
        sh(f"ip -n {node} addr add {address}/24 dev veth-{node[-1]}")
        sh(f"ip -n {node} link set veth-{node[-1]} up")


def tear_down() -> None:
    for node in NODES:
        subprocess.run(["ip", "netns", "del", node], stderr=subprocess.DEVNULL, check=False)


def tell(name: str, run: Path) -> None:
    """Which roles ran where, and how fast it was."""
    places: Counter[tuple[str, str]] = Counter()
    for log in sorted((run / "logs").glob("rank_*.log")):
        if found := re.search(r"rank \d+ of \d+, (\w+), on ([\w-]+)", log.read_text()):
            places[found[1], found[2]] += 1
    summary = json.loads((run / "summary.json").read_text())
    where = ", ".join(f"{n} {role} on {node}" for (role, node), n in sorted(places.items()))
    print(
        f"{name:8} {where}; {summary['timesteps_total']:,} steps, {summary['steps_per_s']:,.0f}/s"
    )


def tell_actors(when: str, run: Path) -> None:
    logs = sorted((run / "logs").glob("rank_*.log"))
    print(f"         {when} the second node joins: {len(logs) - 1} actors")


def elastic(words: list[str], folder: Path, env: dict[str, str]) -> None:
    a, b = NODES
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": env}
    ray = [str(BIN / "ray"), "start", "--block", "--num-cpus", "3", f"--temp-dir={folder}"]
    head = [*ray, "--head", f"--node-ip-address={NODES[a]}", "--port=6399"]
    head += ["--include-dashboard=false"]
    joining = [*ray[:-1], f"--address={NODES[a]}:6399", f"--node-ip-address={NODES[b]}"]
    nodes = [subprocess.Popen(on(a, head), **quiet)]  # type: ignore[call-overload]
    try:
        wait = "import socket, time, sys\nfor _ in range(300):\n try: socket.create_connection(("
        wait += f"'{NODES[a]}', 6399), 1); break\n except OSError: time.sleep(0.1)"
        subprocess.run(on(b, [sys.executable, "-c", wait]), check=True)
        run = folder / "elastic"
        command = [sys.executable, "-m", "exarl", "train", "--workflow", "elastic", *words]
        command += ["--address", f"{NODES[a]}:6399", "--run_dir", str(run)]
        training = subprocess.Popen(on(a, command), env=env, stdout=subprocess.DEVNULL)
        while training.poll() is None and not (run / "result.jsonl").exists():
            time.sleep(0.1)
        tell_actors("before", run)
        nodes.append(subprocess.Popen(on(b, joining), **quiet))  # type: ignore[call-overload]
        if training.wait():
            raise SystemExit("the run failed")
        tell("elastic", run)
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait()


def under_mpi(words: list[str], folder: Path, env: dict[str, str]) -> None:
    a, b = NODES
    shell, hosts, run = folder / "shell", folder / "hosts", folder / "async"
    shell.write_text(SHELL.format(cases=" ".join(f"{ip}) node={n};;" for n, ip in NODES.items())))
    shell.chmod(0o755)
    hosts.write_text(f"{NODES[a]}:3\n{NODES[b]}:2\n")
    command = [str(BIN / "mpiexec"), "-f", str(hosts), "-launcher", "rsh", "-launcher-exec"]
    command += [str(shell), "-localhost", NODES[a], "-n", "5", sys.executable, "-m", "exarl"]
    command += ["train", "--workflow", "async", *words, "--run_dir", str(run)]
    subprocess.run(on(a, command), env=env, check=True, stdout=subprocess.DEVNULL)
    tell("async", run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--total_steps", default="4000")
    options = parser.parse_args()
    words = ["--agent", "DQN-v0", "--env", "ExaLatency-v0", "--total_steps", options.total_steps]
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    try:
        build()
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            under_mpi(words, Path(folder), env)
            elastic(words, Path(folder), env)
    finally:
        tear_down()


if __name__ == "__main__":
    main()
