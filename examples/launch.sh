#!/bin/sh
# sh examples/launch.sh [--share-gpu] N -- PROGRAM ARGUMENTS
# Starts PROGRAM in N processes of this machine with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set as
# torchrun sets them, waits for all, and ends with the first exit code that is not 0.
# --share-gpu: where there are fewer GPUs than processes NCCL takes several on one, as if they were on machines of their own:
# slow, to try things out.
set -u
usage() {
  echo 'usage: sh examples/launch.sh [--share-gpu] N -- PROGRAM ARGUMENTS (N from 1 to 999)' >&2
  exit 2
}
share=
if [ "${1-}" = --share-gpu ]; then
  share=1
  shift
fi
[ $# -ge 3 ] && [ "$2" = -- ] || usage
case $1 in '' | *[!0-9]* | 0* | ????*) usage ;; esac
count=$1
shift 2
WORLD_SIZE=$count
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
# Below the ports that connections get by themselves.
MASTER_PORT=${MASTER_PORT:-$((20000 + $$ % 10000))}
TORCHELASTIC_RUN_ID=${TORCHELASTIC_RUN_ID:-$$.$(date +%s)}
export WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID
started=
trap 'kill $started 2>/dev/null; exit 130' INT TERM HUP
rank=0
while [ "$rank" -lt "$count" ]; do
  if [ "$share" ]; then
    RANK=$rank LOCAL_RANK=$rank NCCL_HOSTID=$rank NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo "$@" &
  else
    RANK=$rank LOCAL_RANK=$rank "$@" &
  fi
  started="$started $!"
  rank=$((rank + 1))
done
status=0
for each in $started; do
  wait "$each"
  code=$?
  [ "$status" -ne 0 ] || status=$code
done
exit "$status"
