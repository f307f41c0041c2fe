#!/bin/sh
# on_gpu.sh PROGRAM [ARGUMENT...]: runs the program where there is an NVIDIA GPU, else is skipped.
for device in /dev/nvidia[0-9]*; do [ ! -e "$device" ] || exec "$@"; done
echo 'skipped: needs a GPU'
exit 77
