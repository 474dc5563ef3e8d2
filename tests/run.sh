#!/bin/bash
# All tests of muster, from a bare Debian 12 on: installs what is missing, builds, runs, and ends with one line that
# counts what really ran. Needs root, or sudo, for packages and for the tests in namespaces.
#
#   tests/run.sh            everything except the large numbers (about 23 minutes on 2 idle cores)
#   tests/run.sh --quick    unit tests, simulator, corpora and lints (under 2 minutes)
#   tests/run.sh --slow     everything, with the large numbers: 50 kills of each kind, 1 M inputs per fuzz target, …
#   tests/run.sh -k EXPR    only end-to-end tests that match (as pytest's -k), and unit tests whose name contains EXPR
#   tests/run.sh --only A,B only these steps: quick clang asan asan-e2e valgrind e2e frameworks soak fuzz slow
#                           aarch64 bench
#
# Builds and results stay in build-test*/ and build-results/. A test that fails while the machine stands still (its host
# stops it, or too many programs want to run) is repeated up to twice, and the end names it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
root=$PWD
scale=normal only= expr=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) scale=quick ;;
    --slow) scale=slow ;;
    -k) expr=${2:?-k EXPR}; shift ;;
    --only) only=,${2:?--only STEPS},; shift ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) echo "tests/run.sh: unknown argument $1; see --help" >&2; exit 2 ;;
    esac
    shift
done

results=$root/build-results
work=$(mktemp -d "${TMPDIR:-/tmp}/muster-tests.XXXXXX") || exit 2
torch_job= # makes the virtual environment meanwhile
declare -A lanes # tests that run beside others: process ids
stalls_job= # records when the machine stands still
trap 'no_policy; [ -z "$torch_job$stalls_job" ] || kill $torch_job $stalls_job; rm -rf "$work"' EXIT
started=$SECONDS
export LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
# A job that a test starts must not look like a part of another job.
unset RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ${!PET_*} ${!TORCHELASTIC_*} ${!SLURM_*}

say() { printf '\n== %s (%d s)\n' "$*" $((SECONDS - started)); }
failed() { mkdir -p "$results"; echo "$2" > "$results/$1.failed"; echo "$1: $2" >&2; }
skipped() { mkdir -p "$results"; echo "$2" >> "$results/$1.skipped"; }
# wanted STEP LOWEST_SCALE
wanted() {
    if [ -n "$only" ]; then [[ $only == *,$1,* ]]; return; fi
    case $2 in quick) true ;; normal) [ "$scale" != quick ] ;; slow) [ "$scale" = slow ] ;; esac
}
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

policy= # what we have put there while packages are installed
no_policy() { [ -z "$policy" ] || as_root rm -f "$policy"; policy=; }
packages() {
    local all=(gcc libc6-dev meson ninja-build pkg-config python3 python3-pytest libevent-dev libssl-dev libcjson-dev
        libhwloc-dev libcriterion-dev mandoc)
    [ "$scale" = quick ] ||
        all+=(clang clang-format-14 libclang-rt-14-dev valgrind python3-pytest-xdist python3-venv iproute2 util-linux procps ca-certificates mold
            etcd-server etcd-client openssl nftables python3-yaml zsh slurmctld slurmd slurm-client munge
            openssh-server openssh-client elfutils runc openmpi-bin mpich prometheus prometheus-node-exporter)
    [ "$scale" != slow ] || all+=(lmod mmdebstrap uidmap fish chromium)
    local missing=() p
    for p in "${all[@]}"; do
        [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2>/dev/null)" = "ii " ] || missing+=("$p")
    done
    [ ${#missing[@]} = 0 ] && return
    say "installing ${missing[*]}"
    # With this policy no package starts its service.
    [ -e /usr/sbin/policy-rc.d ] || policy=/usr/sbin/policy-rc.d
    [ -z "$policy" ] || printf '#!/bin/sh\nexit 101\n' | as_root install -m 755 /dev/stdin "$policy"
    as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
            > "$work/apt.log" 2>&1 && { no_policy; return; }
    no_policy
    tail -5 "$work/apt.log" >&2
    failed packages "could not install ${missing[*]}"
}

torch_python=
make_torch_venv() {
    local py=$root/.venv/bin/python
    "$py" -c 'import torch, numpy; assert torch.__version__.startswith("2.13.")' 2>/dev/null && return
    say "making .venv with PyTorch 2.13 (a large download)"
    { [ -x "$py" ] || python3 -m venv .venv; } &&
        { timeout 1200 "$py" -m pip install -q 'torch==2.13.0+cpu' numpy coverage 2>/dev/null ||
            timeout 1800 "$py" -m pip install -q 'torch==2.13.0' numpy coverage; } > "$work/pip.log" 2>&1
}
torch_venv() {
    if [ -n "$torch_job" ]; then wait "$torch_job"; else make_torch_venv; fi
    torch_job=
    if "$root/.venv/bin/python" -c 'import torch, numpy' 2>/dev/null; then
        torch_python=$root/.venv/bin/python
    else
        echo "PyTorch could not be had; its tests are skipped by name" >&2
    fi
}

# build DIR MESON_ARGS...: configured once, compiled each time.
build() {
    local dir=$1
    shift
    if [ ! -f "$dir/build.ninja" ]; then
        rm -rf "$dir"
        meson setup "$dir" --werror "$@" > "$work/setup.log" 2>&1 || { tail -20 "$work/setup.log"; return 1; }
    fi
    ninja -C "$dir" > "$work/ninja.log" 2>&1 && return
    grep -E 'error|FAILED|undefined' "$work/ninja.log" | head -20
    return 1
}

# meson_tests LABEL DIR ARGS...: runs and keeps the JUnit file.
meson_tests() {
    local label=$1 dir=$2 log=testlog setup=
    shift 2
    case "$*" in *--setup*) setup=${*##*--setup }; log=testlog-${setup%% *} ;; esac
    local names=()
    if [ -n "$expr" ]; then
        mapfile -t names < <(meson test -C "$dir" --list "$@" 2>/dev/null | sed -n 's/^.* \/ //p' | grep -F -- "$expr")
        [ ${#names[@]} -gt 0 ] || return 0
    fi
    rm -f "$dir/meson-logs/$log.junit.xml" "$dir/meson-logs/$log.json"
    meson test -C "$dir" --no-rebuild --print-errorlogs "$@" "${names[@]}" < /dev/null 2>&1 | tail -n 60
    /usr/bin/python3 tests/tools/meson_again.py "$dir" "$log" ${setup:+--setup "${setup%% *}"} | tail -n 60
    cp "$dir/meson-logs/$log.json" "$results/$label.json" 2>/dev/null
    cp "$dir/meson-logs/$log.junit.xml" "$results/$label.xml" 2>/dev/null || failed "$label" "meson test did not run"
}

# A shell that waits for a foreground program does not act on a signal, so pytest is none.
stop() {
    trap - TERM INT
    local jobs
    jobs=$(jobs -p)
    # shellcheck disable=SC2086
    [ -z "$jobs" ] || kill $jobs 2>/dev/null
    exit "$1"
}

# Most end-to-end tests wait most of the time: one takes a fifth of a core. The slow suite's limits are strict: one after the
# other.
# side_by_side N
side_by_side() { [ "$scale" = slow ] || echo "-n ${MUSTER_TEST_JOBS:-$1}"; }

# beside NAME COMMAND...: runs it in the background; `meet NAME` waits for its end, and shows its output.
beside() {
    if [ "$scale" = slow ]; then "${@:2}"; return; fi
    "${@:2}" > "$work/$1.log" 2>&1 &
    lanes[$1]=$!
}
meet() { [ -z "${lanes[$1]:-}" ] || { wait "${lanes[$1]}"; cat "$work/$1.log"; }; }

# e2e LABEL MUSTER_BINARY ARGS...
e2e() {
    local label=$1 muster=$2
    shift 2
    local select=()
    [ -z "$expr" ] || select=(-k "$expr")
    trap 'stop 143' TERM
    trap 'stop 130' INT
    MUSTER=$muster timeout $([ "$scale" = slow ] && echo 14400 || echo 3600) /usr/bin/python3 -m pytest -q --no-header -p no:cacheprovider -rfE --tb=short \
        --basetemp="$work/$label" --junitxml="$results/$label.xml" -o junit_family=xunit1 "${select[@]}" "$@" < /dev/null &
    wait $!
    local rc=$?
    [ $rc = 5 ] && [ -n "$expr" ] && rm -f "$results/$label.xml" # nothing of that name here
    [ -f "$results/$label.xml" ] || [ $rc = 5 ] || failed "$label" "pytest ended with status $rc"
    rm -rf "${work:?}/$label" & # half a million files, which would take two minutes at the end
}

rm -rf "$results"
mkdir -p "$results"
packages
export MUSTER_TEST_STALLS=$work/stalls MUSTER_TEST_REPEATED=$results/repeated.txt MUSTER_TEST_REWRITTEN=$work/rewritten
/usr/bin/python3 tests/tools/stalls.py "$MUSTER_TEST_STALLS" < /dev/null &
stalls_job=$!
if command -v ld.mold > /dev/null; then export CC_LD=mold; fi # hundreds of test programs are linked for each build

if wanted e2e normal; then
    make_torch_venv & # a download, most of the time
    torch_job=$!
fi

say "build and quick tests (gcc)"
if build build-test; then
    # many of them wait
    if wanted quick quick; then meson_tests quick build-test --num-processes $(($(nproc) * 3 / 2)); fi
else
    failed build "the gcc build failed"
fi
muster=$root/build-test/src/cli/muster

if wanted clang normal; then
    say "clang build, warnings are errors" # its tests would find what gcc's and the sanitized ones do
    # char is unsigned on aarch64
    CC=clang build build-test-clang -Doptimization=0 -Ddebug=false -Dc_args='-funsigned-char -Wtype-limits' || failed clang "the clang build failed"
fi

if wanted e2e normal; then
    torch_venv
    case $scale in slow) kills=50 slower=1 ;; *) kills=3 slower=3 ;; esac
    with_torch() {
        MUSTER_TEST_PYTHON=$torch_python MUSTER_TEST_SCALE=$scale MUSTER_KILLS=${MUSTER_KILLS:-$kills} \
            MUSTER_TEST_SLOWER=${MUSTER_TEST_SLOWER:-$slower} e2e "$@" tests/e2e
    }
    say "end to end on a machine that does nothing else, then PyTorch beside the next steps"
    with_torch e2e-alone "$muster" -m "alone and not torch"
    beside torch with_torch e2e-torch "$muster" $(side_by_side 2) -m torch
fi

if wanted asan normal || wanted asan-e2e normal; then
    say "ASan and UBSan"
    # Without optimization it is compiled in a quarter of the time, and nothing wrong is optimized away.
    # without optimization gcc can't see that a text was measured before it is cut
    if build build-test-asan -Db_sanitize=address,undefined -Doptimization=0 -Dc_args='-g1 -Wno-format-truncation'; then
        if wanted asan normal; then
            meson_tests asan build-test-asan --no-suite lint --no-suite sim
            # Ten times slower than the quick suite; what wrong rules do is of no interest here.
            SIM_SEEDS=2000 meson_tests asan-sim build-test-asan --suite sim group directed losses succession
        fi
    else
        failed asan "the sanitized build failed"
    fi
fi

# Together with the tests beside it, it keeps both cores busy.
memory_checks() {
    if wanted valgrind normal; then
        say "valgrind over muster's own processes"
        mkdir -p "$work/vg-logs"
        MUSTER_TEST_VALGRIND=1 MUSTER_TEST_TOOL_LOGS=$work/vg-logs MUSTER_TEST_SLOWER=20 MUSTER_KILLS=1 \
            e2e valgrind "$muster" $(side_by_side 2) tests/e2e/test_run.py tests/e2e/test_faults.py tests/e2e/test_hostile.py \
                -k "${expr:-$(tr '\n' ' ' < tests/tools/valgrind.list)}"
    fi

    if wanted asan-e2e normal && [ -x build-test-asan/src/cli/muster ]; then
        say "end to end, sanitized, C and shell workers"
        mkdir -p "$work/asan-logs"
        local few=() # recorded machines of the same kinds are read in test_env.py
        [ "$scale" = slow ] || few=(--deselect "tests/e2e/test_topo.py::test_the_manual_has_each_key_of_the_json[hwloc/"
            --deselect "tests/e2e/test_topo.py::test_the_manual_has_each_key_of_the_json[nccl-xml/")
        ASAN_OPTIONS=detect_leaks=1:log_path=$work/asan-logs/asan \
            UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path=$work/asan-logs/ubsan \
            MUSTER_TEST_TOOL_LOGS=$work/asan-logs MUSTER_TEST_SLOWER=4 MUSTER_KILLS=2 \
            e2e asan-e2e "$root/build-test-asan/src/cli/muster" $(side_by_side 2) "${few[@]}" \
            tests/e2e/test_run.py tests/e2e/test_faults.py \
            tests/e2e/test_etcd.py tests/e2e/test_topo.py tests/e2e/test_env.py \
            tests/e2e/test_hostile.py::test_a_damaged_{tree,file}_is_shown_or_refused \
            --deselect tests/e2e/test_topo.py::test_a_written_nccl_file_tells_what_its_machine_does
    fi
}
beside memory memory_checks

if wanted e2e normal; then
    say "end to end: kills, namespaces"
    with_torch e2e "$muster" $(side_by_side 6) -m "not torch and not alone"
fi

meet memory
if wanted valgrind normal && [ "$scale" = slow ]; then meson_tests valgrind-unit build-test --setup valgrind; fi
meet torch

if wanted frameworks slow; then
    py=$root/.venv-frameworks/bin/python
    say "frameworks (the first time, a very large download)"
    { [ -x "$py" ] || python3 -m venv .venv-frameworks; } &&
        timeout 3600 "$py" -m pip install -q 'torch==2.13.0' numpy accelerate transformers lightning jax setuptools wheel \
            ninja py-cpuinfo > "$work/frameworks.log" 2>&1 &&
        timeout 1800 "$py" -m pip install -q --no-build-isolation deepspeed >> "$work/frameworks.log" 2>&1 ||
        tail -3 "$work/frameworks.log"
    # What could not be installed is skipped by name.
    MUSTER_TEST_FRAMEWORKS=$py MUSTER_TEST_SCALE=slow MUSTER_TEST_SLOWER=4 \
        e2e frameworks "$muster" tests/e2e/test_frameworks.py tests/e2e/test_pages.py \
        tests/e2e/test_python_package.py::test_other_launchers_start_their_jobs_with_muster
fi

if wanted soak slow; then
    say "soak: ${MUSTER_SOAK_FAULTS:=1000} faults"
    MUSTER=$muster timeout 3600 /usr/bin/python3 tests/e2e/soak.py --faults "$MUSTER_SOAK_FAULTS" --jobs 6 \
        --keep "$results/soak" < /dev/null || failed soak "a job did not recover; see $results/soak"
    for form in "" --warm; do
        # shellcheck disable=SC2086
        MUSTER=$muster timeout 3600 /usr/bin/python3 tests/e2e/kills.py --rounds "${MUSTER_KILL_ROUNDS:-500}" $form \
            < /dev/null > "$results/kills$form" || failed soak "a kill was not handled; see $results/kills$form"
    done
fi

if wanted fuzz slow; then
    say "fuzzing: ${MUSTER_FUZZ_RUNS:=1000000} inputs for each target"
    if CC=clang build build-test-fuzz -Dfuzz=enabled -Db_sanitize=address,undefined -Db_lundef=false \
        -Dc_args=-fsanitize=fuzzer-no-link; then
        RUNS=$MUSTER_FUZZ_RUNS /usr/bin/python3 tests/tools/fuzz_all.py build-test-fuzz "$results/fuzz.xml"
    else
        failed fuzz "the fuzzing build failed"
    fi
fi

if wanted slow slow; then
    say "the slow simulator"
    meson_tests slow build-test --setup slow --suite slow
fi

if wanted aarch64 slow; then
    say "aarch64, in an emulated machine"
    tests/aarch64.sh "$root/build-test-aarch64" || true # its results are counted below
    for file in build-test-aarch64/results/*; do cp "$file" "$results/aarch64-$(basename "$file")"; done ||
        failed aarch64 "tests/aarch64.sh made no results"
fi

if wanted bench slow; then
    torch_venv
    say "benchmarks"
    MUSTER_TEST_PYTHON=$torch_python meson test -C build-test --no-rebuild --benchmark --verbose < /dev/null 2>&1 |
        grep -vE '^(ninja|\[|Full log)' | tail -n 150
fi

say "done"
python3 tests/tools/summary.py "$results"
