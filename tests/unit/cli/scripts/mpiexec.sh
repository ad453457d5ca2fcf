#!/bin/bash
#SBATCH --job-name=exarl
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --no-requeue

# 120 s before the time limit the run writes a checkpoint and exits with
# code 138.

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
run=results_dir/exarl-$SLURM_JOB_ID

trap 'kill -USR1 "$job"' USR1  # mpiexec passes it on to every rank
mpiexec -n 2 \
    exarl train --env CartPole-v1 --total_steps 60000 --run_dir "$run" &
job=$!
wait "$job"
code=$?
while kill -0 "$job" 2> /dev/null; do  # a signal interrupts wait
    wait "$job"
    code=$?
done

exit "$code"
