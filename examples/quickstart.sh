#!/bin/sh
# Sets the machine up, builds train_moe and trains a small mixture-of-experts model on the C++ headers of this machine,
# once with every policy. Arguments are handed on to train_moe instead of the default ones.
set -eu
cd "$(dirname "$0")/.."
sh examples/setup.sh

build=${STRETTO_BUILD:-build-quickstart}
program=$build/examples/train_moe
[ -f "$build/build.ninja" ] ||
  { rm -rf "$build"; meson setup "$build" --buildtype=release -Dwerror=false -Dtests=disabled -Dbench=disabled; }

if ! ninja -C "$build" -t query examples/train_moe >/dev/null 2>&1; then
  echo 'quickstart: the build has no train_moe; the end of the configuration above says what it needs.' >&2
  exit 1
fi
ninja -C "$build" -j "$(nproc)" examples/train_moe

[ $# -gt 0 ] || set -- --text /usr/include/c++ --compare
printf '\n$ train_moe %s\n' "$*"
exec "$program" "$@"
