#!/bin/bash
#SBATCH --job-name=exarl
#SBATCH --array=0-9
#SBATCH --open-mode=append
#SBATCH --signal=USR1@120
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --requeue

# 120 s before the time limit the run writes a checkpoint and exits with
# code 138. The job is then requeued, and the same command continues the run.

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
notes=$(mktemp -d)  # this script runs on the node of rank 0 and of Ray's head
trap 'rm -rf "$notes"' EXIT
export EXARL_END_FILE="$notes/end"

srun --kill-on-bad-exit=1 --mpi=pmi2 \
    exarl sweep --study 'my study' --worker
code=$?

end=$(cat "$notes/end" 2> /dev/null)
if [ "$code" -eq 138 ] || [ "$end" = SIGUSR1 ]; then
    echo "exarl: the time limit is near; job $SLURM_JOB_ID is requeued to continue"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
