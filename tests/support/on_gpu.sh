#!/bin/sh
# on_gpu.sh COUNT PROGRAM [ARGUMENT...]: runs the program where there are that many NVIDIA GPUs, else is skipped.
count=$1
shift
found=0
for device in /dev/nvidia[0-9]*; do [ ! -e "$device" ] || found=$((found + 1)); done
if [ "$found" -lt "$count" ]; then
  printf 'skipped: needs %s GPU(s), found %s\n' "$count" "$found"
  exit 77
fi
exec "$@"
