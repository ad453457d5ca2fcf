#!/bin/bash
#SBATCH --job-name=ch
#SBATCH --open-mode=append
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --requeue
#SBATCH hetjob
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --partition=cpu
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=32

# 120 s before the time limit the run writes a checkpoint and exits with
# code 138. The job is then requeued, and the same command continues the run.

run=results_dir/ch-$SLURM_JOB_ID
notes=$(mktemp -d)  # this script runs on the node of rank 0 and of Ray's head
trap 'rm -rf "$notes"' EXIT
export EXARL_END_FILE="$notes/end"

# One MPI world: the learners have the lowest ranks, so they are the first component.
srun --kill-on-bad-exit=1 --mpi=pmi2 --het-group=0 --cpus-per-task=8 \
    env OMP_NUM_THREADS=8 exarl train --env CartPole-v1 --total_steps 60000 --workflow async --run_dir "$run" \
  : --het-group=1 --cpus-per-task=1 \
    env OMP_NUM_THREADS=1 exarl train --env CartPole-v1 --total_steps 60000 --workflow async --run_dir "$run"
code=$?

end=$(cat "$notes/end" 2> /dev/null)
if [ "$code" -eq 138 ] || [ "$end" = SIGUSR1 ]; then
    echo "exarl: the time limit is near; job $SLURM_JOB_ID is requeued to continue"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
