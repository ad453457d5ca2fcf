"""A Slurm cluster of two nodes on this machine, for as long as a test needs it.

The daemons are those of the distribution, and real: munged, slurmctld and two slurmd. Each node is a
set of Linux namespaces (network, processes, mounts, host name) with an address of its own on a bridge,
so jobs see two hosts. All of it is inside one outer set of namespaces: nothing of the machine is
changed, clusters do not meet, and everything ends with the first process.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from exarl.envs.child import tied

TOOLS = ("slurmctld", "slurmd", "munged", "sbatch", "unshare", "nsenter", "ip")
NODES = ("n1", "n2")
CPUS = 4

HOSTS = "127.0.0.1 localhost\n10.77.0.1 login\n10.77.0.11 n1\n10.77.0.12 n2\n"
CONF = f"""\
ClusterName=exarl
SlurmctldHost=login(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket
StateSaveLocation=@DIR@/state
SlurmdSpoolDir=@DIR@/spool-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=@DIR@/slurmctld.log
SlurmdLogFile=@DIR@/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
KillWait=5
ReturnToService=2
GresTypes=gpu
NodeName=n1 NodeAddr=10.77.0.11 CPUs={CPUS} RealMemory=4000 Gres=gpu:1
NodeName=n2 NodeAddr=10.77.0.12 CPUs={CPUS} RealMemory=4000
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""
GRES = "NodeName=n1 Name=gpu File=/dev/zero\n"

SITE = """\
set -e
cd @DIR@
hostname login
mount --bind hosts /etc/hosts
mount -t tmpfs tmpfs /run
ip link set lo up
ip link add br0 type bridge
ip addr add 10.77.0.1/24 dev br0
ip link set br0 up
munged --foreground --force --key-file=@DIR@/munge.key --socket=/run/munge.socket \\
    --pid-file=/run/munged.pid --seed-file=/run/munged.seed --log-file=@DIR@/munged.log &
slurmctld -D -f @DIR@/slurm.conf &
mkdir /run/netns
for n in 1 2; do
    ip netns add n$n
    ip link add v$n master br0 type veth peer name eth0 netns n$n
    ip link set v$n up
    nsenter --net=/run/netns/n$n \\
        unshare --fork --pid --ipc --mount --uts --mount-proc bash node.sh n$n 1$n &
done
touch up
wait
"""
NODE = """\
hostname $1
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /mnt
ip link set lo up
ip addr add 10.77.0.$2/24 dev eth0
ip link set eth0 up
until [ -S /run/munge.socket ]; do sleep 0.02; done
slurmd -D -N $1 -f @DIR@/slurm.conf &
wait  # not exec: the first process of a node has to bury those that lost their parent
"""


@functools.cache
def unfit() -> str | None:
    """Why there can be no cluster here; None when there can."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"Slurm is not installed ({', '.join(missing)})"
    tried = "ip link add br0 type bridge && ip link add v0 type veth peer name v1"
    command = ["unshare", "--fork", "--pid", "--net", "--mount", "--uts", "bash", "-c", tried]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"no namespaces for two nodes: {done.stderr.strip()}" if done.returncode else None


class Cluster:
    """The cluster, from construction to ``close``; commands run on its login node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir()
        for name, text in {
            "hosts": HOSTS,
            "slurm.conf": CONF,
            "gres.conf": GRES,
            "site.sh": SITE,
            "node.sh": NODE,
        }.items():
            (folder / name).write_text(text.replace("@DIR@", str(folder)))
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        spaces = ("--fork", "--pid", "--net", "--mount", "--uts", "--mount-proc", "--kill-child")
        self._log = (folder / "site.log").open("wb")
        self._site = subprocess.Popen(
            tied(["unshare", *spaces, "bash", str(folder / "site.sh")], signal.SIGKILL),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self._wait_until_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Everything in the cluster is killed, with the first process of its namespace."""
        self._site.send_signal(signal.SIGKILL)
        self._site.wait()
        self._log.close()

    def run(
        self, *command: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command on the login node."""
        (inside,) = (
            Path(f"/proc/{self._site.pid}/task/{self._site.pid}/children").read_text().split()
        )
        enter = ["nsenter", f"--target={inside}", "--net", "--mount", "--uts", "--pid"]
        place = ["--wd=" + str(cwd or self.folder)]
        return subprocess.run(
            [*enter, *place, *command],
            env={**job_environment(), "SLURM_CONF": str(self.folder / "slurm.conf")}
            | dict(environ or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def say(self, *command: str) -> str:
        """The output of a command that must go well."""
        done = self.run(*command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def job(self, id: str) -> dict[str, str]:
        """What ``scontrol show job`` says of the job."""
        words = self.say("scontrol", "--oneliner", "show", "job", id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, id: str, *states: str, patience: float = 90) -> dict[str, str]:
        """The job, as soon as it is in one of ``states``."""
        deadline = time.monotonic() + patience
        while (job := self.job(id))["JobState"] not in states:
            assert time.monotonic() < deadline, f"no {states} within {patience} s: {job}"
            time.sleep(0.1)
        return job

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            assert self._site.poll() is None, (self.folder / "site.log").read_text()
            assert time.monotonic() < deadline, (self.folder / "slurmctld.log").read_text()[-2000:]
            if (self.folder / "up").exists():
                shown = self.run("sinfo", "--noheader", "--format=%T %D").stdout.split()
                if shown == ["idle", str(len(NODES))]:
                    return
            time.sleep(0.05)


def job_environment() -> dict[str, str]:
    """What a login shell has: this Python and this EXARL first, no marks of another job."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PMI", "RAY_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": path}
