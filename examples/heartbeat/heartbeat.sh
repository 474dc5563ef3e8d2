#!/bin/sh
# A loop that tells the launcher of each step, and that it may be silent for longer while it saves.
#
#     muster run --no-python examples/heartbeat/heartbeat.sh
set -eu
tell() { [ -z "${MUSTER_NOTIFY_SOCKET:-}" ] || muster notify "$@"; }

for step in 1 2 3; do
    tell "MUSTER_STEP=$step" "STATUS=step $step"
done
tell WATCHDOG_USEC=600000000 # ten minutes for the checkpoint
tell MUSTER_SAFE_POINT=1 WATCHDOG_USEC=0
echo "$step steps"
