"""The batch scripts of ``exarl slurm``, run by a real Slurm on two nodes."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import shutil
import subprocess
from typing import Any

import pytest
from support.jobs import (
    LIGHT,
    PYTHON,
    assert_same,
    everything_of,
    reference,
    summary_of,
    wait_until,
)
from support.slurm import job_environment

from exarl.cli.batch import BatchJob, script

TWO = ("--nodes", "2", "--ntasks-per-node", "2", "--time", "10")
TRAIN = ("--", "train", *LIGHT, "--env", "Replayed-v0", "--checkpoint_interval", "0.2")
SLOWLY = {"delay": 0.004}


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What TRAIN leaves on four ranks of one machine when it is not stopped."""
    words = (*LIGHT, "--env", "Replayed-v0", "--procs", 4)
    return everything_of(reference(tmp_path_factory.getbasetemp(), "slurm4", *words))


def test_a_job_runs_on_two_nodes(site: Any) -> None:
    id = site.submit("--nodes", "2", "--time", "10", "--job_name", "first", *TRAIN)
    job = site.end(id)
    assert (job["JobState"], job["NodeList"]) == ("COMPLETED", "n[1-2]"), site.log()
    (run,) = site.runs()
    assert run.name == f"first-{id}"
    assert summary_of(run)["timesteps_total"] >= 1500
    assert json.loads((run / "manifest.json").read_text())["layout"]["world"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["srun", "mpiexec"])
def test_a_job_that_is_queued_again_ends_as_if_nothing_had_been(
    site: Any, launcher: str, undisturbed: dict[str, Any]
) -> None:
    id = site.begin(*TWO, "--launcher", launcher, *TRAIN, subject=SLOWLY)
    site.stop(id, *(() if launcher == "srun" else ("--batch",)))
    job = site.end(id)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), site.log()
    (run,) = site.runs()
    assert site.log().count("continuing at step") == 1
    assert_same(everything_of(run), undisturbed)


@pytest.mark.slow
def test_an_actor_in_the_middle_of_a_long_step_holds_up_nothing(site: Any) -> None:
    """The learner writes the checkpoint without it and takes all ranks down."""
    stuck = {"fault": "pause", "at": 200, "rank": 2, "once": True, "folder": str(site.folder)}
    id = site.begin(*TWO, *TRAIN, "--workflow", "async", subject={**SLOWLY, **stuck})
    wait_until((site.folder / "struck").exists)
    site.stop(id)
    job = site.end(id)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), site.log()
    (run,) = site.runs()
    assert summary_of(run)["timesteps_total"] >= 1500


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_the_time_limit_itself(site: Any, undisturbed: dict[str, Any]) -> None:
    """Nobody interferes: Slurm sends the signal, and starts the job again after two minutes."""
    limit = ("--time", "1", "--signal-before", "50")
    id = site.submit(*TWO, *limit, *TRAIN, subject={"delay": 0.045})
    job = site.end(id, patience=420)
    # Slurm looks at the clock now and then: the signal comes some seconds early or late.
    assert job["JobState"] == "COMPLETED" and job["Restarts"] in ("1", "2"), site.log()
    (run,) = site.runs()
    assert_same(everything_of(run), undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_learner_and_actors_on_nodes_of_two_kinds(site: Any, undisturbed: dict[str, Any]) -> None:
    del site.environ["MPICH_CH4_NETMOD"]  # over two components it sometimes hangs at the start
    words = ("--actor-nodes", "1", "--ntasks-per-node", "3", "--gpus-per-node", "1", "--time", "10")
    id = site.begin(*words, *TRAIN, subject=SLOWLY)
    site.cluster.say("scancel", "--signal=USR1", id)
    job = site.end(id, patience=240)  # the two minutes cannot be cut short for two components
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), site.log()
    (run,) = site.runs()
    assert json.loads((run / "manifest.json").read_text())["host"] == "n1"  # the one with a GPU
    assert_same(everything_of(run), undisturbed)


@pytest.mark.slow
def test_an_array_is_a_run_for_each_task(site: Any) -> None:
    id = site.submit("--array", "3-5", "--time", "10", *TRAIN, "--seed", "%a")
    for task in (3, 4, 5):
        job = site.end(f"{id}_{task}")
        assert job["JobState"] == "COMPLETED", site.log()
    assert [run.name for run in site.runs()] == [f"exarl-{id}_{task}" for task in (3, 4, 5)]
    seeds = [
        json.loads((run / "config.json").read_text())["learner"]["seed"] for run in site.runs()
    ]
    assert seeds == [3, 4, 5]


@pytest.mark.slow
def test_the_tasks_of_an_array_share_a_sweep(site: Any) -> None:
    words = ("--agent", "Random-v0", "--env", "CartPole-v1", "--total_steps", "500")
    words += ("--block_steps", "16,32,64", "--sampler", "grid", "--seeds", "2")
    study = site.folder / "study"
    made = [PYTHON, "-m", "exarl", "sweep", *words, "--study", str(study), "--executor", "slurm"]
    told = subprocess.run(
        [*made, "--jobs", "2"], env=job_environment(), capture_output=True, text=True, check=True
    )
    assert f"-- sweep --study {study} --worker" in told.stdout
    id = site.submit("--array", "0-1", "--time", "10", "--", "sweep", "--study", study, "--worker")
    for task in (0, 1):
        assert site.end(f"{id}_{task}")["JobState"] == "COMPLETED", site.log()
    rows = list(csv.DictReader((study / "trials.csv").open()))
    assert [row["state"] for row in rows] == ["complete"] * 3
    assert all(row["seed_1"] and row["seed_2"] for row in rows)


@pytest.mark.slow
def test_neither_a_failure_nor_scancel_is_a_reason_to_start_again(site: Any) -> None:
    fault = {"fault": "raise", "at": 50, "rank": 1, "folder": str(site.folder)}
    job = site.end(site.submit(*TWO, *TRAIN, subject=fault))
    assert (job["JobState"], job["Restarts"]) == ("FAILED", "0"), site.log()
    shutil.rmtree(site.folder / "results_dir")
    id = site.begin(*TWO, *TRAIN, subject=SLOWLY)
    site.cluster.say("scancel", id)
    assert (job := site.end(id))["JobState"] == "CANCELLED"
    assert job["Restarts"] == "0"
    assert site.cluster.say("squeue", "--noheader") == ""


@pytest.mark.slow
def test_tasks_that_do_not_know_each_other_are_refused(site: Any) -> None:
    """Each would train alone, and all in the same run directory."""
    job = site.end(site.submit(*TWO, "--mpi", "none", *TRAIN))
    assert (job["JobState"], job["Restarts"]) == ("FAILED", "0")
    assert "4 tasks were started, but MPI knows of one" in site.log()
    assert not (site.folder / "results_dir").exists()


STAND_IN = f"""\
#!{PYTHON}
# Says where Ray runs tasks, then waits to be told to stop; the second time it ends at once.
import os, pathlib, signal, socket, sys, threading, time
told = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: told.set())
import ray
ray.init("auto", log_to_driver=False)

@ray.remote(num_cpus=2, scheduling_strategy="SPREAD")
def host():
    time.sleep(0.5)
    return socket.gethostname()

hosts = set(ray.get([host.remote() for _ in range(4)]))
mark = pathlib.Path("hosts")
again = mark.exists()
mark.write_text(" ".join(sorted(hosts)) + " " + " ".join(sys.argv[1:]))
assert "SLURM_PROCID" not in os.environ
sys.exit(0 if again else 138 if told.wait(60) else 1)
"""


@pytest.mark.slow
def test_ray_on_two_nodes_is_stopped_and_started_again(site: Any) -> None:
    (site.folder / "bin").mkdir()
    program = site.folder / "bin" / "exarl"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    batch = BatchJob(command=("sweep", "--study", "a b"), launcher="ray", nodes=2, time="10")
    (site.folder / "job.sh").write_text(script(batch))
    path = os.pathsep.join([str(program.parent), job_environment()["PATH"]])
    environ = {**site.environ, "PATH": path, "RAY_TMPDIR": "/mnt"}
    command = ("sbatch", "--parsable", "job.sh")
    id = site.cluster.run(*command, cwd=site.folder, environ=environ).stdout.strip()
    mark = site.folder / "hosts"
    wait_until(mark.exists)
    site.stop(id, "--batch")
    job = site.end(id, patience=150)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), site.log()
    assert mark.read_text() == "n1 n2 sweep --study a b"


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("exarl.workflows.elastic") is None, reason="no elastic workflow"
)
def test_the_elastic_workflow_on_two_nodes(site: Any) -> None:
    site.environ["RAY_TMPDIR"] = "/mnt"
    words = ("--env", "CartPole-v1", "--total_steps", "3000", "--learning_starts", "200")
    elastic = ("--workflow", "elastic", "--n_actors", "4")
    id = site.submit("--nodes", "2", "--time", "10", "--", "train", *words, *elastic)
    job = site.end(id, patience=150)
    assert job["JobState"] == "COMPLETED", site.log()
    (run,) = site.runs()
    assert summary_of(run)["timesteps_total"] >= 3000
