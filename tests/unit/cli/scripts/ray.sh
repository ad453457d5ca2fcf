#!/bin/bash
#SBATCH --job-name=exarl
#SBATCH --open-mode=append
#SBATCH --time=20
#SBATCH --signal=B:USR1@120
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --exclusive

# 120 s before the time limit the run writes a checkpoint and exits with
# code 138. The job is then requeued, and the same command continues the run.

notes=$(mktemp -d)  # this script runs on the node of rank 0 and of Ray's head
trap 'rm -rf "$notes"' EXIT
export EXARL_END_FILE="$notes/end"

# This script runs on the first node. Find the address at which the other nodes reach it, a free port,
# and a password for this job.
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
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=180  # seconds for all nodes to join
export RAY_gcs_rpc_server_reconnect_timeout_s=20  # a lost head node does not come back
trap 'kill -USR1 "$(cat "$notes/pid")"' USR1
# Ray starts on every node, the command on the first one; Ray ends with the command.
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
while kill -0 "$job" 2> /dev/null; do  # a signal interrupts wait
    wait "$job"
    code=$?
done
[ -s "$notes/code" ] && code=$(cat "$notes/code")

end=$(cat "$notes/end" 2> /dev/null)
if [ "$code" -eq 138 ] || [ "$end" = SIGUSR1 ]; then
    echo "exarl: the time limit is near; job $SLURM_JOB_ID is requeued to continue"
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
