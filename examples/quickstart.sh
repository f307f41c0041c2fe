#!/bin/sh
# Sets the machine up, builds train_moe and trains a small mixture-of-experts model on the C++ headers of this machine,
# once with every policy. Arguments are handed on to train_moe instead of the default ones.
set -eu
cd "$(dirname "$0")/.."
sh examples/setup.sh

build=${STRETTO_BUILD:-build-quickstart}
say() { printf 'quickstart: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

if [ ! -f "$build/build.ninja" ]; then
  say "configuring $build"
  # Half of a build goes; other files are not ours.
  if [ -d "$build/meson-private" ]; then rm -rf "$build"; fi
  mkdir -p "$build" 2>/dev/null && [ -w "$build" ] ||
    fail "$build cannot be written here; name a folder elsewhere in STRETTO_BUILD."
  [ -z "$(ls -A "$build")" ] ||
    fail "$build has files that are no build; name another folder in STRETTO_BUILD."
  messages=$(meson setup "$build" --buildtype=release -Dtests=disabled -Dbench=disabled 2>&1) ||
    { printf '%s\n' "$messages" >&2; fail 'Meson could not configure the build; its messages above say why.'; }
fi
ninja -C "$build" -t query examples/train_moe >/dev/null 2>&1 ||
  fail "$(grep -o 'train_moe is left out.*' "$build/meson-logs/meson-log.txt" || echo 'the build has no train_moe')."

say 'building train_moe (a minute or two the first time)'
ninja -C "$build" -j "$(nproc)" examples/train_moe

[ $# -gt 0 ] || set -- --text /usr/include/c++ --compare
printf '\n$ train_moe %s\n' "$*"
exec "$build/examples/train_moe" "$@"
