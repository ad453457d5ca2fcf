#!/bin/bash
#SBATCH --job-name=exarl
#SBATCH --open-mode=append
#SBATCH --time=20
#SBATCH --signal=B:USR1@120
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --exclusive

# 120 s before the time limit the run writes a checkpoint and ends with
# exit code 138. Then this job is queued again, and the same command continues.

notes=$(mktemp -d)  # rank 0 and Ray's first node are where this script runs
trap 'rm -rf "$notes"' EXIT
export EXARL_END_FILE="$notes/end"

# This script runs on the first node: the address at which the others reach it, with a port that is
# free, and a password of this job's own.
last=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n 1)
read -r address RAY_AUTH_TOKEN < <(python - "$last" << 'END'
import secrets, socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    out.connect((sys.argv[1], 9))
    host = out.getsockname()[0]
with socket.socket() as free:
    free.bind((host, 0))
    print(f"{host}:{free.getsockname()[1]}", secrets.token_hex(32))
END
)
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=180  # seconds for all nodes to come
export RAY_gcs_rpc_server_reconnect_timeout_s=20  # a first node that is gone stays gone
trap 'kill -USR1 "$(cat "$notes/pid")"' USR1
# Ray starts on every node and the command on the first one; Ray ends with it.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --mpi=none --cpu-bind=none \
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus="${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}" \
    --min-worker-port=0 --max-worker-port=0 -- \
    env -u SLURM_PROCID -u SLURM_STEP_NUM_TASKS \
    bash -c '"$@" & echo $! > "$0/pid"; wait $!; echo $? > "$0/code"' "$notes" \
    exarl sweep --study s &
job=$!
wait "$job"
code=$?
while kill -0 "$job" 2> /dev/null; do  # the signal has only ended the wait
    wait "$job"
    code=$?
done
[ -s "$notes/code" ] && code=$(cat "$notes/code")

end=$(cat "$notes/end" 2> /dev/null)
if [ "$code" -eq 138 ] || [ "$end" = SIGUSR1 ]; then
    echo "exarl: the time is nearly over; job $SLURM_JOB_ID is queued again to continue"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
