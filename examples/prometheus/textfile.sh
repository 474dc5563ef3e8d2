#!/bin/sh
# textfile.sh JOB FILE.prom [SECONDS]: writes the metrics of a job for node_exporter until it ends.
# The collector reads only *.prom, and mv replaces the file in one step: it is never read half written.
# Until the job runs, nothing is written: an earlier run may have had the same id.
rm -f "$2"
until grep -Eqs 'state="(succeeded|failed|closed)"' "$2"; do
    muster status -o prometheus "$1" > "$2.new" && { [ -e "$2" ] || grep -q muster_workers "$2.new"; } && mv "$2.new" "$2"
    sleep "${3:-15}"
done
sleep 120 # so that the last state is scraped
rm -f "$2"
