#!/bin/sh
# Brings a Debian 12 or Ubuntu 24.04 machine to what stretto needs, as root or through sudo; no GPU is needed.
#   sh examples/setup.sh           what the quick start needs
#   sh examples/setup.sh --tests   that, and what the tests need
#   sh examples/setup.sh --print-torch   installs nothing; prints torch's folder if there is one
# Installs only what is missing: a second run finds everything and changes nothing.
set -eu

torch_version=2.11.0
torch_requirements="torch==$torch_version nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85"
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/stretto
torch_venv=$cache/torch-$torch_version
apt_sources=${STRETTO_APT_SOURCES:-/etc/apt}
os_release=${STRETTO_OS_RELEASE:-/etc/os-release}

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

for_tests=no only_print_torch=no
case "$#:${1-}" in
  0:) ;;
  1:--tests) for_tests=yes ;;
  1:--print-torch) only_print_torch=yes ;;
  *) fail "the arguments are --tests or --print-torch or none, not '$*'." ;;
esac

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }
has_catch2() { has_command pkg-config && pkg-config --exists 'catch2-with-main >= 3'; }
has_sanitizers() {
  for runtime in /usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.asan-*.a; do [ -e "$runtime" ] && return; done
  return 1
}

complete_torch() { [ -e "$1/include/ATen/ATen.h" ] && [ -e "$1/lib/libtorch_cpu.so" ] && [ -e "$1/lib/libc10.so" ]; }
find_torch() {
  for torch in "$torch_venv"/lib/python3*/site-packages/torch; do complete_torch "$torch" && return; done
  for interpreter in python3 /usr/bin/python3; do
    has_command "$interpreter" || continue
    torch=$("$interpreter" -c '
import importlib.util as u, os
spec = u.find_spec("torch")
print(os.path.dirname(spec.origin) if spec and spec.origin else "")' 2>/dev/null) || continue
    [ -n "$torch" ] && complete_torch "$torch" && grep -q "^__version__ = '$torch_version" "$torch/version.py" && return
  done
  torch=
  return 1
}

if [ $only_print_torch = yes ]; then
  find_torch || exit 1
  printf '%s\n' "$torch"
  exit
fi

# needed: nothing goes without it. wanted: its tests are skipped without it.
needed= wanted=
need() { package=$1; shift; "$@" || needed="$needed $package"; }
want() { package=$1; shift; "$@" || wanted="$wanted $package"; }

need g++ has_command g++
need meson has_command meson
need ninja-build has_command ninja
need pkg-config has_command pkg-config
need libcli11-dev has_header CLI/CLI.hpp
need nlohmann-json3-dev has_header nlohmann/json.hpp
need libfmt-dev has_header fmt/format.h
if [ $for_tests = yes ]; then
  need python3 has_command python3
  need binutils has_command objdump
  need catch2 has_catch2
  want librapidcheck-dev has_header rapidcheck.h
  want libbenchmark-dev has_header benchmark/benchmark.h
  want libgloo-dev has_header gloo/algorithm.h
  want valgrind has_command valgrind
  want clang-19 has_command clang++-19
  want libclang-rt-19-dev has_sanitizers
fi

# The interpreter of the distribution is the one that python3-venv belongs to; a newer one in front of it may do as well.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

find_torch || need python3-venv "$python" -c 'import ensurepip, venv' 2>/dev/null

if [ -n "$needed$wanted" ]; then
  id= version=
  if [ -r "$os_release" ]; then
    id=$(. "$os_release" && printf '%s' "${ID-}") version=$(. "$os_release" && printf '%s' "${VERSION_ID-}")
  fi
  obstacle=
  case "$id $version" in
    'debian 12' | 'ubuntu 24.04') ;;
    *) obstacle="this is neither Debian 12 nor Ubuntu 24.04" ;;
  esac
  as_root=
  if [ -z "$obstacle" ] && [ "$(id -u)" != 0 ]; then
    if ! has_command sudo; then obstacle="this is not root and there is no sudo"
    elif [ -t 0 ]; then as_root=sudo
    elif sudo -n true 2>/dev/null; then as_root='sudo -n'
    else obstacle="this is not root and sudo wants a password"; fi
  fi
  if [ -n "$obstacle" ]; then
    [ -z "$needed" ] || fail "please install$needed$wanted (names as on Debian) by hand: $obstacle."
    say "without$wanted some tests are skipped: $obstacle."
    wanted=
  fi
fi

# Adds the backports suite to the entry that Debian 12 itself comes from, since only there is Catch2 3.
# Third parties' entries may name the suite bookworm too; Debian's have the component main and a path that ends in /debian.
add_backports() {
  grep -Eqrs '^[^#]*bookworm-backports' "$apt_sources/sources.list" "$apt_sources/sources.list.d" && return
  for list in "$apt_sources"/sources.list.d/*.sources; do
    [ -e "$list" ] || continue
    edited=$(awk 'BEGIN { RS = ""; ORS = "\n\n" }
      !done && ("\n" $0) ~ /\nURIs:[^\n]*\/debian\/?[ \t]*(\n|$)/ && ("\n" $0) ~ /\nComponents:([^\n]*[ \t])?main([ \t\n]|$)/ \
            && match("\n" $0, /\nSuites:([^\n]*[ \t])?bookworm([ \t\n]|$)/) {
        sub(/Suites:[^\n]*/, "& bookworm-backports"); done = 1 }
      { print }
      END { exit !done }' "$list") || continue
    say "adding the suite bookworm-backports to $list"
    printf '%s\n' "$edited" | $as_root tee "$list" >/dev/null
    return
  done
  for list in "$apt_sources/sources.list" "$apt_sources"/sources.list.d/*.list; do
    [ -e "$list" ] || continue
    entry=$(grep -E '^deb[[:space:]].*/debian/?[[:space:]]+bookworm[[:space:]](.*[[:space:]])?main([[:space:]]|$)' "$list" | head -n 1)
    [ -n "$entry" ] || continue
    say "adding the suite bookworm-backports beside the entry of $list"
    printf '%s\n' "$entry" | sed 's/[[:space:]]bookworm[[:space:]]/ bookworm-backports /' |
      $as_root tee "$apt_sources/sources.list.d/bookworm-backports.list" >/dev/null
    return
  done
  fail "catch2 3 is in the suite bookworm-backports; no entry of Debian's own found in $apt_sources to derive it from, please add it by hand."
}

# apt-get's many lines are of interest only when it fails.
apt_get() {
  messages=$($as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l \
    apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null 2>&1) || { printf '%s\n' "$messages" >&2; return 1; }
}

if [ -n "$needed$wanted" ]; then
  say "installing$needed$wanted (a minute or two)"
  from_backports=
  case "$id $needed " in 'debian '*' catch2 '*) add_backports; from_backports=/bookworm-backports ;; esac
  apt_get update || say "apt-get update had trouble; trying with the lists at hand."
  packages=
  for package in $needed; do
    [ "$package" != catch2 ] || package=catch2$from_backports
    packages="$packages $package"
  done
  if [ -n "$packages" ]; then
    apt_get install --no-install-recommends $packages || fail "apt-get could not install$packages; its messages above say why."
  fi
  if [ -n "$wanted" ]; then
    apt_get install --no-install-recommends $wanted || say "apt-get could not install$wanted; the tests that use them are skipped."
  fi
fi

# The folder appears under its name only when it is complete, so an interrupted or a concurrent run leaves no half of it.
make_torch() {
  mkdir -p "$cache"
  for leftover in "$torch_venv".partial.*; do
    [ -e "$leftover" ] || continue
    kill -0 "${leftover##*.}" 2>/dev/null || rm -rf "$leftover"
  done
  partial=$torch_venv.partial.$$
  trap 'rm -rf "$partial"' EXIT
  trap 'exit 130' INT TERM HUP
  say "fetching torch $torch_version into $torch_venv (about half a GB, 1.2 GB unpacked)"
  "$python" -m venv "$partial" || fail "$python could not make a virtual environment in $partial."
  # --no-deps: a CPU program needs nothing else of CUDA, and the rest is another 3.5 GB.
  "$partial/bin/pip" install --quiet --no-deps --no-cache-dir $torch_requirements </dev/null ||
    fail "pip could not install $torch_requirements; its messages above say why."
  find_torch && return # another run was faster
  rm -rf "$torch_venv"
  mv "$partial" "$torch_venv"
  find_torch || fail "$torch_venv lacks torch's headers or libraries although pip reported success."
}

[ -n "$torch" ] || make_torch
say "everything is there; torch: $torch"
