#!/bin/bash
# Shows muster at work, in under a minute. Two agents with two workers each train a network on this machine. First a
# worker is killed, then a whole agent. The training continues each time, and ends with its accuracy.
#
#     examples/quickstart.sh
#
# Installs what the build needs with apt-get, only if something is missing; builds in build-quickstart/ (or $BUILD).
# Exit status 0: both recoveries were seen, and the network is accurate.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build-quickstart}

have_all() {
    local tool
    for tool in meson ninja cc pkg-config python3; do
        command -v "$tool" >/dev/null || return 1
    done
    pkg-config --exists libevent_core libcrypto libcjson hwloc
}

if ! have_all; then
    echo "== installing what the build needs"
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        gcc libc6-dev meson ninja-build pkg-config python3 \
        libevent-dev libssl-dev libcjson-dev libhwloc-dev
fi

SECONDS=0
echo "== building in $build"
if [ ! -f "$build/build.ninja" ]; then
    output=$(meson setup "$build" -Dtests=disabled -Dnccl-examples=disabled) || { echo "$output"; exit 1; }
fi
output=$(ninja -C "$build" src/cli/muster examples/c-digits) || { echo "$output"; exit 1; }
muster=$build/src/cli/muster

# --- the job: all output of the agents comes through one FIFO; a step can wait for any line of it ---

work=$(mktemp -d)
clean_up() {
    local status=$? pid_file
    trap - EXIT INT TERM HUP
    set +e
    for pid_file in "$work"/agent-*.pid; do # when an agent ends, so do its workers
        [ -f "$pid_file" ] && kill -TERM "$(<"$pid_file")" 2>/dev/null
    done
    exec 3>&-
    wait
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'echo "interrupted" >&2; exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

mkfifo "$work/said"
exec 3<>"$work/said"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
trainer=("$build/examples/c-digits" --data examples/data/digits.csv --epochs 30 --step-delay-ms 3
    --checkpoint-dir "$work/checkpoints" --pid-dir "$work/pids")

start_agent() {
    local name=$1
    {
        "$muster" run --nnodes 1:2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" \
            --rdzv-id quick --rdzv-conf last_call_timeout=5 --max-restarts 3 --no-python "${trainer[@]}" 2>&1 3>&- &
        echo $! >"$work/agent-$name.pid"
        local status=0
        wait $! 2>/dev/null || status=$?
        rm "$work/agent-$name.pid"
        echo "-- ended with status $status"
    } | sed -u "s/^/[agent $name] /" >&3 &
}

# The process that was started is the guardian; the agent is its child.
agent_pid() {
    local guardian kids
    guardian=$(<"$work/agent-$1.pid")
    read -r kids _ <"/proc/$guardian/task/$guardian/children"
    echo "$kids"
}

echo "== two agents with two workers each"
start_agent A
step=alone accuracy=
while IFS= read -r -t 45 line <&3; do
    printf '%s\n' "$line"
    case $step:$line in
    alone:"[agent A] muster: "*) # it exists, so it leads
        step=training
        start_agent B
        ;;
    training:*" epoch 6 of "*"world size 4"*)
        step=worker-killed
        read -r pid generation <"$work/pids/rank-3.pid"
        echo "== killing worker 3 of generation $generation (process $pid)"
        kill -KILL "$pid"
        ;;
    worker-killed:*" epoch 16 of "*"world size 4, generation "*)
        if [[ $line == *"generation $generation" ]]; then
            echo "== no new generation came after the kill" >&2
            exit 1
        fi
        step=agent-killed
        pid=$(agent_pid B)
        echo "== killing agent B (process $pid) with all it runs"
        kill -KILL "$pid"
        ;;
    agent-killed:*" epoch "*"world size 2"*)
        step=smaller
        echo "== the training goes on with the two workers of agent A"
        ;;
    smaller:*" test accuracy: "*)
        step=trained
        accuracy=${line##*test accuracy: }
        ;;
    *:"[agent A] -- ended with status "*)
        [[ $line == *"status 0" ]] || step="failed after: $step"
        break
        ;;
    esac
done

if [ "$step" != trained ]; then
    echo "== this did not work: $step" >&2
    exit 1
fi
echo "== done in $SECONDS s, one worker and one agent lost on the way: $accuracy of the test digits are read rightly"
whole=${accuracy%%[. ]*}
[ "$whole" -ge 95 ]
