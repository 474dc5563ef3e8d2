#!/bin/sh
# tests/gpu/run.sh [--out DIR] [--only NAME,...] [--muster FILE] [--limit SECONDS]: checks what only a GPU can show.
# tests/gpu/run.sh --pack FILE [--muster FILE]: writes one file that does the same where there are only Python and PyTorch.
#
# Which muster: FILE, or build/src/cli/muster, or tests/gpu/muster. Exit status: 0 if no check failed, 1 if one did.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
muster= pack=
n=$#
while [ "$n" -gt 0 ]; do # takes these two out of "$@"
    case $1 in
    --muster=* | --pack=*)
        option=${1%%=*} value=${1#*=}
        shift
        set -- "$option" "$value" "$@"
        n=$((n + 1))
        ;;
    --muster | --pack)
        [ "$n" -gt 1 ] && [ -n "$2" ] || { echo "run.sh: $1 needs a file" >&2; exit 2; }
        [ "$1" = --pack ] && pack=$2 || muster=$2
        shift 2
        n=$((n - 2))
        ;;
    *) set -- "$@" "$1"; shift; n=$((n - 1)) ;;
    esac
done
[ -z "$muster" ] || [ -x "$muster" ] || { echo "run.sh: $muster is not executable" >&2; exit 2; }
for file in "$muster" "$root/build/src/cli/muster" "$here/muster"; do
    [ ! -x "$file" ] || break
done
case " $* " in
*" --help "* | *" -h "*) ;;
*) [ -x "$file" ] || { echo "run.sh: no muster; build one, or name it with --muster" >&2; exit 2; } ;;
esac

if [ -n "$pack" ]; then
    [ $# = 0 ] || { echo "run.sh: --pack takes no $1" >&2; exit 2; }
    [ -e "$root/meson.build" ] || { echo "run.sh: this kit is packed already: copy its file" >&2; exit 2; }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 143' HUP INT TERM
    (cd "$root" && tar -cf - tests/gpu/run.sh tests/gpu/*.py examples/nccl-allreduce include/muster/store.h src/client/*.[ch]) |
        tar -xf - -C "$work"
    install -m 755 "$file" "$work/tests/gpu/muster"
    {
        # shellcheck disable=SC2016
        printf '%s\n' '#!/bin/sh' '# Checks muster on a GPU: sh FILE [--out DIR] [--only NAME,...]' \
            'work=$(mktemp -d) || exit 2' 'kit=' "trap 'rm -rf \"\$work\"' EXIT" \
            "trap 'trap \"\" HUP INT TERM; [ -z \"\$kit\" ] || { kill \$kit; wait \$kit; }; exit 143' HUP INT TERM" \
            'tail -n +11 "$0" | tar -xzf - -C "$work" || { echo "$0 is damaged: copy it again" >&2; exit 2; }' \
            'sh "$work/tests/gpu/run.sh" "$@" &' 'kit=$!; wait $kit' 'exit $?'
        tar -czf - -C "$work" .
    } >"$pack"
    chmod 755 "$pack"
    exit
fi

# The first Python on PATH that has PyTorch, else the first that runs.
python=
for candidate in ${GPU_KIT_PYTHON:-} $(echo "$PATH" | tr ':' '\n' | sed 's,$,/python3,') /opt/*/.venv/bin/python3; do
    [ -x "$candidate" ] || continue
    if "$candidate" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then
        python=$candidate
        break
    fi
    [ -n "$python" ] || ! "$candidate" -c '' 2>/dev/null || python=$candidate
done
[ -n "$python" ] || { echo "run.sh: no python3 on PATH that runs" >&2; exit 2; }
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/kit.py" --muster "$file" "$@"
