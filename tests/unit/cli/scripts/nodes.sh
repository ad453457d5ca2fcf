#!/bin/bash
#SBATCH --job-name=exarl
#SBATCH --open-mode=append
#SBATCH --time=1-00:00:00
#SBATCH --account=physics
#SBATCH --qos=high
#SBATCH --signal=USR1@120
#SBATCH --partition=long
#SBATCH --constraint=a|b
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=12
#SBATCH --cpus-per-task=2
#SBATCH --requeue
#SBATCH --mail-type=END
#SBATCH --mem=0

# 120 s before the time limit the run writes a checkpoint and exits with
# code 138. The job is then requeued, and the same command continues the run.

module purge
module load cuda
source "$(conda info --base)/etc/profile.d/conda.sh"
conda activate 'my env'
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
run=results_dir/exarl-$SLURM_JOB_ID
notes=$(mktemp -d)  # this script runs on the node of rank 0 and of Ray's head
trap 'rm -rf "$notes"' EXIT
export EXARL_END_FILE="$notes/end"

srun --kill-on-bad-exit=1 --mpi=pmi2 --cpus-per-task=2 \
    exarl train --env CartPole-v1 --total_steps 60000 --run_dir "$run"
code=$?

end=$(cat "$notes/end" 2> /dev/null)
if [ "$code" -eq 138 ] || [ "$end" = SIGUSR1 ]; then
    echo "exarl: the time limit is near; job $SLURM_JOB_ID is requeued to continue"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
