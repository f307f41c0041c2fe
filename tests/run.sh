#!/bin/sh
# Builds stretto in three ways and runs every test; the last line is "N passed, N failed[, N skipped]".
# The builds stay in build-tests/ (or in $STRETTO_BUILDS), so that a second run is quick.
set -eu
cd "$(dirname "$0")/.."
sh examples/setup.sh --tests

builds=${STRETTO_BUILDS:-build-tests}
mkdir -p "$builds" 2>/dev/null || {
  echo "run.sh: $builds cannot be written here; name a folder elsewhere in STRETTO_BUILDS" >&2
  exit 1
}
jobs=$(nproc)
logs= failed= skipped=

started=$(date +%s)
say() { printf '\n[%4d s] %s\n' $(($(date +%s) - started)) "$*"; }

# configure BUILD OPTION...
configure() {
  folder=$builds/$1
  shift
  [ ! -f "$folder/build.ninja" ] || return 0
  # Half of a build goes; other files are not ours.
  if [ -d "$folder/meson-private" ]; then rm -rf "$folder"; fi
  if [ -d "$folder" ] && [ -n "$(ls -A "$folder")" ]; then
    echo "run.sh: $folder has files that are no build; name another folder in STRETTO_BUILDS" >&2
    exit 1
  fi
  meson setup "$folder" "$@"
}

# run_tests BUILD [MESON TEST OPTION...]: builds what these tests need, and runs them.
run_tests() {
  build=$1
  shift
  log=$builds/$build/meson-logs/testlog.json
  rm -f "$log"
  $no_randomisation meson test -C "$builds/$build" --num-processes "$jobs" "$@" </dev/null && status=0 || status=$?
  if [ -f "$log" ]; then logs="$logs $build=$log"
  elif [ $status != 0 ]; then failed="$failed build-of-$build"; fi
}

host_tests='--suite unit --suite host --suite sim'
# Full debug information doubles the time to compile these templates; line numbers are what sanitizers print.
sanitized='-Doptimization=0 -Ddebug=false -Dtorch=disabled -Dcuda=disabled -Dbench=disabled'
sanitized_flags="${CXXFLAGS-} -g1 -D_GLIBCXX_ASSERTIONS"
no_randomisation=

say 'g++, everything'
if CXX=${CXX:-g++} configure main -Doptimization=2 -Ddebug=false && ninja -C "$builds/main" -j "$jobs" -k 0; then
  run_tests main --no-rebuild
else
  failed="$failed build-of-main"
fi

if command -v clang++-19 >/dev/null; then
  # A shared library's undefined symbols are the runtime's, which clang links to programs only.
  compiler=clang++-19 options=-Db_lundef=false
else
  compiler=${CXX:-g++} options=
  skipped="$skipped clang-19:needs-clang++-19"
fi
say "$compiler with the address and undefined-behaviour sanitizers, host and static tests"
if CXX=$compiler CXXFLAGS=$sanitized_flags configure asan -Db_sanitize=address,undefined $options $sanitized; then
  run_tests asan $host_tests --suite static --no-suite skipped
else
  failed="$failed build-of-asan"
fi

say 'g++ with the thread sanitizer, host tests'
# Its shadow memory has fixed places, which an address space that is randomised much may occupy.
if setarch -R true 2>/dev/null; then no_randomisation='setarch -R'; fi
if CXX=${CXX:-g++} CXXFLAGS=$sanitized_flags configure tsan -Db_sanitize=thread $sanitized; then
  run_tests tsan $host_tests --no-suite skipped
else
  failed="$failed build-of-tsan"
fi
no_randomisation=

say 'summary'
python3 tests/support/tally.py --failed $failed --skipped $skipped --logs $logs
