#!/bin/sh
# sh examples/launch.sh [--share-gpu] N -- PROGRAM ARGUMENTS
# Starts PROGRAM in N processes of this machine with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set as
# torchrun sets them, and waits for all. When one fails it ends the others at once and ends with that exit code; when it is
# told to end (Ctrl-C) it ends all. No process is left behind.
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
command -v "$1" >/dev/null || {
  echo "launch.sh: there is no program '$1'; check its path" >&2
  exit 127
}
WORLD_SIZE=$count
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
# Below the ports that connections get by themselves.
MASTER_PORT=${MASTER_PORT:-$((20000 + $$ % 10000))}
TORCHELASTIC_RUN_ID=${TORCHELASTIC_RUN_ID:-$$.$(date +%s)}
export WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID

# A line for each process that has ended: sh has no way to wait for whichever ends first.
folder=$(mktemp -d) && mkfifo "$folder/ends" && exec 3<>"$folder/ends" || exit 1
rm -r "$folder"

# With a session of its own a rank ends together with what it has started.
session=$(command -v setsid)

# Runs one rank and tells its exit code. Told to end, it ends the process, if need be by force.
watch_rank() {
  # The shell writes a word of its own about each process that a signal ends.
  exec 4>&2 2>/dev/null
  child= killer=
  send() {
    kill -s "$1" -- "-$child" || kill -s "$1" "$child"
  }
  end_child() {
    # A stopped process ends when it goes on.
    send TERM && send CONT
    [ -z "$killer" ] || return
    # Its sleep may outlive it, and must not hold an output up.
    (
      sleep 5 &
      nap=$!
      trap 'kill "$nap"; exit' TERM
      wait "$nap"
      send KILL
    ) >&2 3>&- 4>&- &
    killer=$!
  }
  told=
  trap 'told=1; [ -z "$child" ] || end_child' TERM HUP INT
  RANK=$1 LOCAL_RANK=$1
  export RANK LOCAL_RANK
  if [ "$share" ]; then
    NCCL_HOSTID=$RANK NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo
    export NCCL_HOSTID NCCL_NET NCCL_SOCKET_IFNAME
  fi
  shift
  $session "$@" 2>&4 3>&- 4>&- &
  child=$!
  [ -z "$told" ] || end_child
  wait "$child"
  code=$?
  # A signal ends the waiting before the process.
  while kill -0 "$child"; do
    wait "$child"
    code=$?
  done
  [ -z "$killer" ] || kill "$killer"
  # What a rank that failed had started.
  [ "$code" -eq 0 ] || kill -s KILL -- "-$child"
  echo "$RANK $code" >&3
}

watchers= status=0
end_all() {
  for each in $watchers; do kill "$each" 2>/dev/null; done
}
trap 'status=130; end_all' INT
trap 'status=143; end_all' TERM
trap 'status=129; end_all' HUP
left=0
while [ "$left" -lt "$count" ] && [ "$status" -eq 0 ]; do
  watch_rank "$left" "$@" &
  watchers="$watchers $!"
  left=$((left + 1))
done
# For a signal that came while the last one started.
[ "$status" -eq 0 ] || end_all
while [ "$left" -gt 0 ]; do
  read -r rank code <&3 || continue
  left=$((left - 1))
  [ "$code" -ne 0 ] && [ "$status" -eq 0 ] || continue
  status=$code
  [ "$left" -gt 0 ] || continue
  echo "launch.sh: rank $rank ended with exit code $code; ending the others" >&2
  end_all
done
exit "$status"
