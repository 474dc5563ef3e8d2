#!/bin/sh
# Runs a test program under valgrind, children too, and fails when valgrind said anything about any of them. Criterion
# passes tests whose child valgrind complains about, so the verdict is "some log is not empty", never the exit status.
# Used as exe_wrapper of `meson test --setup valgrind`.
set -u
dir=$(mktemp -d "${TMPDIR:-/tmp}/muster-vg.XXXXXX") || exit 99
trap 'rm -rf "$dir"' EXIT

valgrind -q --trace-children=yes --trace-children-skip='*/python3*,/bin/*,/usr/bin/*' --child-silent-after-fork=no \
    --leak-check=full --show-leak-kinds=definite,indirect,possible --errors-for-leak-kinds=definite,indirect,possible \
    --suppressions="$(dirname "$0")/vg.supp" --log-file="$dir/%p" "$@"
rc=$?

for log in "$dir"/*; do
    grep -q '^==' "$log" 2>/dev/null || continue # --PID-- lines are about valgrind itself
    echo "valgrind, process ${log##*/}:" >&2
    cat "$log" >&2
    rc=99
done
exit "$rc"
