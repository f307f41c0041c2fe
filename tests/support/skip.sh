#!/bin/sh
# skip.sh REASON: a test that cannot run here; 77 is Meson's "skipped".
printf 'skipped: %s\n' "$1"
exit 77
