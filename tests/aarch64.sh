#!/bin/bash
# muster for aarch64, built and tested on an x86-64 Debian 12. There is no such machine here: qemu emulates one, with
# Debian's kernel for pages of 16 KiB.
#
#   tests/aarch64.sh DIR              all of it, below DIR: at most 90 minutes on 2 idle cores, and 6 GB
#   tests/aarch64.sh DIR STEP...      only these steps, in this order: setup gcc clang packages vm
#
#   setup     cross compilers, emulators, Debian's packages for arm64, the kernel; needs root, or sudo, and the network
#   gcc       builds everything in DIR/gcc; warnings are errors
#   clang     the same in DIR/clang
#   packages  packaging/build.sh wheel and deb for aarch64
#   vm        starts the machine with what was built: packages, units, processes, simulator (its traces are those of this
#             machine), quickstart.sh, and $E2E of the end-to-end tests. Ends with one line that counts them.
#
# VM_LIMIT: of the machine, in seconds. MEMORY: of the machine.
set -euo pipefail
: "${E2E:=test_stacks.py test_run.py test_signals.py test_bind.py}" "${VM_LIMIT:=4800}" "${MEMORY:=3G}"
source=$(cd "$(dirname "$0")/.." && pwd)
[ $# -gt 0 ] && [ "${1#-}" = "$1" ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"; exit 2; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- setup gcc clang packages vm
root=$dir/sysroot machine=$dir/machine image=$dir/machine.img results=$dir/results
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

# ---- setup ----

PACKAGES=ca-certificates,gcc,libc6-dev,meson,ninja-build,pkg-config,python3,python3-pytest,libevent-dev,libssl-dev,libcjson-dev
PACKAGES+=,libhwloc-dev,libcriterion-dev,procps,iproute2,openssl,binutils,util-linux,kmod,busybox-static,mandoc,strace,psmisc,python3-venv

# The packages of another architecture would take the place of this machine's own, so they are only unpacked. qemu-user is,
# too: if it were installed, the kernel would start programs of another processor by itself, which tests expect to fail.
step_setup() {
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends crossbuild-essential-arm64 \
        debootstrap qemu-system-arm cpio kmod xz-utils meson ninja-build pkg-config clang lld e2fsprogs >"$dir/apt.log"
    mirror=$(sed -n 's/^URIs: *//p; s/^deb \([^ ]*\) .*/\1/p' /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
    rm -rf "$root" "$dir/packages" "$dir/user" "$dir/kernel"
    mkdir -p "$root" "$dir/user" "$dir/kernel/lists/partial" "$dir/kernel/cache/archives/partial"
    as_root debootstrap --foreign --arch=arm64 --variant=minbase --include="$PACKAGES" bookworm "$dir/packages" "$mirror" >"$dir/debootstrap.log"
    for package in "$dir"/packages/var/cache/apt/archives/*.deb; do dpkg -x "$package" "$root"; done
    (cd "$dir/user" && apt-get download -qq qemu-user-static && dpkg -x qemu-user-static_*.deb .)
    # Debian 12 has no kernel with large pages.
    echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$dir/kernel/sources.list"
    options=(-o "Dir::Etc::SourceList=$dir/kernel/sources.list" -o Dir::Etc::SourceParts=/nonexistent -o APT::Architecture=arm64
        -o APT::Architectures=arm64 -o "Dir::State::lists=$dir/kernel/lists" -o "Dir::Cache=$dir/kernel/cache")
    apt-get "${options[@]}" update -qq
    kernel=$(apt-cache "${options[@]}" search --names-only '^linux-image-[0-9.]+.deb13-arm64-16k-unsigned$' | sort -V | tail -n 1 | cut -d' ' -f1)
    (cd "$dir/kernel" && apt-get "${options[@]}" download -qq "$kernel" && dpkg-deb -x "$kernel"_*.deb .)
    depmod -b "$dir/kernel/usr" "$(basename "$dir"/kernel/usr/lib/modules/*)"
}

# ---- builds ----

cross_file() { # gcc|clang
    case $1 in
    gcc) echo "[binaries]"; echo "c = ['aarch64-linux-gnu-gcc', '--sysroot=$root']" ;;
    clang) echo "[binaries]"; echo "c = ['clang', '--target=aarch64-linux-gnu', '--sysroot=$root']"; echo "c_ld = 'lld'" ;;
    esac
    for tool in ar strip nm objdump readelf; do echo "$tool = 'aarch64-linux-gnu-$tool'"; done
    cat <<END
pkgconfig = 'pkg-config'
exe_wrapper = ['$dir/user/usr/bin/qemu-aarch64-static', '-L', '$root']
[properties]
sys_root = '$root'
pkg_config_libdir = '$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'armv8-a'
endian = 'little'
END
}

build() { # gcc|clang
    cross_file "$1" >"$dir/$1.ini"
    [ -f "$dir/$1/build.ninja" ] ||
        (cd "$source" && env -u CC -u CC_LD meson setup "$dir/$1" --cross-file "$dir/$1.ini" --werror -Dnccl-examples=disabled >"$dir/$1-setup.log") ||
        { tail -n 20 "$dir/$1-setup.log"; exit 1; }
    ninja -C "$dir/$1" >"$dir/$1.log" || { grep -E 'error|FAILED|undefined' "$dir/$1.log" | head -n 20; exit 1; }
    echo "$1: built, 0 warnings"
}
step_gcc() { build gcc; }
step_clang() { build clang; }

step_packages() {
    rm -rf "$dir/built"
    for kind in wheel deb; do "$source/packaging/build.sh" $kind "$dir/built" aarch64; done
}

# ---- the machine ----

initrd() {
    rm -rf "$dir/initrd"
    mkdir -p "$dir"/initrd/{bin,dev,proc,sys,newroot,modules}
    cp "$root/bin/busybox" "$dir/initrd/bin/"
    n=0
    for module in crypto/crc32c_generic fs/jbd2/jbd2 fs/mbcache lib/crc16 fs/ext4/ext4 drivers/block/virtio_blk; do
        n=$((n + 1))
        xz -dc "$dir"/kernel/usr/lib/modules/*/kernel/$module.ko.xz >"$dir/initrd/modules/$n.ko"
    done
    cat >"$dir/initrd/init" <<'END'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
for module in /modules/*; do $b insmod $module; done
while [ ! -e /dev/vda ]; do $b sleep 0.2; done
$b mount -t ext4 /dev/vda /newroot
for m in dev proc sys; do $b mount --move /$m /newroot/$m; done
exec $b switch_root /newroot /sbin/begin
END
    chmod +x "$dir/initrd/init"
    (cd "$dir/initrd" && find . | cpio -o -H newc --quiet | gzip -1 >../initrd.gz)
}

# The source and the build folder have the paths that they have here, which meson has noted.
disk() {
    rm -rf "$machine" "$image"
    mkdir "$machine"
    cp -al "$root/." "$machine/"
    rm -rf "$machine"/usr/share/{doc,locale,man}
    mkdir -p "$machine"{/proc,/sys,/dev,/tmp,/run,/root,/results,/usr/local/bin,"$dir/user/usr/bin","$source"}
    chmod 1777 "$machine/tmp"
    cp -a "$dir/kernel/usr/lib/modules" "$machine/lib/"
    cp -a "$dir/gcc" "$machine$dir/"
    find "$machine$dir/gcc" -name '*.o' -delete
    (cd "$source" && git ls-files -z | xargs -0 cp -a --parents -t "$machine$source")
    mkdir "$machine/packages"
    [ ! -d "$dir/built" ] || cp "$dir"/built/* "$machine/packages/"
    # There the wrapper only has to start the program, with Criterion's limits of 50 s as 1050 s, and all is built.
    printf '#!/bin/bash\nshift 2\nexec "${@/#--timeout=/--timeout=10}"\n' >"$machine$dir/user/usr/bin/qemu-aarch64-static"
    printf '#!/bin/sh\n' >"$machine/usr/local/bin/ninja"
    chmod +x "$machine$dir/user/usr/bin/qemu-aarch64-static" "$machine/usr/local/bin/ninja"
    ln -sf mawk "$machine/usr/bin/awk"
    ln -sf gcc "$machine/usr/bin/cc"
    [ -e "$machine/bin/sh" ] || ln -s dash "$machine/bin/sh"
    (cd "$machine/etc" && rm -f passwd group hosts nsswitch.conf)
    printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n' >"$machine/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$machine/etc/group"
    printf '127.0.0.1 localhost\n127.0.1.1 arm\n::1 localhost\n' >"$machine/etc/hosts"
    printf 'passwd: files\ngroup: files\nhosts: files\n' >"$machine/etc/nsswitch.conf"
    {
        cat <<'END'
#!/bin/bash
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TMPDIR=/tmp PYTHONDONTWRITEBYTECODE=1
mount -t tmpfs tmpfs /run; mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup; mount -t tmpfs tmpfs /tmp
ln -s /proc/self/fd /dev/fd; ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout; ln -s fd/2 /dev/stderr
for module in fuse inet_diag tcp_diag unix_diag netlink_diag veth bridge; do modprobe -q $module; done
ip link set lo up; hostname arm; ldconfig; ulimit -n 20000
echo "machine: $(uname -srm), pages of $(getconf PAGESIZE) bytes"
report() { echo "machine: $1, $SECONDS s" >/dev/console; }
END
        printf 'cd %q; build=%q e2e=%q\n' "$source" "$dir/gcc" "$E2E"
        cat <<'END'
meson() { # LABEL SUITE
    command meson test -C $build --no-rebuild --timeout-multiplier 20 --num-processes 2 --suite $2 </dev/null >/results/$1.log 2>&1
    cp $build/meson-logs/testlog.json /results/$1.json; cp $build/meson-logs/testlog.junit.xml /results/$1.xml
    report $1
}
works() { # NAME MUSTER: a package that is installed
    [ "$($2 run --standalone --nproc-per-node=2 --no-python sh -c 'uname -m' 2>&1 | grep -c 'aarch64$')" = 2 ] ||
        echo "$2 of the package does not start two workers" >/results/$1.failed
}
packages() {
    portable=$(ls /packages/muster-*-linux-aarch64) || return
    python3 -m venv /opt/venv && /opt/venv/bin/pip install -q --no-index --find-links /packages 'muster[torchrun]'
    mkdir -p /var/lib/dpkg/{info,updates} && touch /var/lib/dpkg/status
    dpkg --force-depends -i /packages/*.deb
    works portable "$portable"; works wheel /opt/venv/bin/muster; works deb /usr/bin/muster
    report packages
}
packages >/results/packages.log 2>&1
BUILD=$build examples/quickstart.sh </dev/null >/results/quickstart.log 2>&1 || echo "quickstart.sh ended with status $?" >/results/quickstart.failed
report quickstart
MUSTER=$build/src/cli/muster MUSTER_TEST_SLOWER=20 python3 -m pytest -q -p no:cacheprovider -rfE --tb=short \
    --junitxml=/results/e2e.xml -o junit_family=xunit1 $(printf 'tests/e2e/%s ' $e2e) </dev/null >/results/e2e.log 2>&1
report end-to-end
meson unit unit
meson process process
SIM_SEEDS=2000 meson sim sim
for seed in $(seq 100); do SEED=$seed $build/tests/test-sim-group 2>&1; done | sha256sum >/results/traces
sync; echo "machine: done"; echo o >/proc/sysrq-trigger; sleep 30
END
    } >"$machine/sbin/begin"
    chmod +x "$machine/sbin/begin"
    truncate -s 4G "$image"
    mke2fs -q -t ext4 -d "$machine" "$image"
    rm -rf "$machine"
}

# The simulator's schedules are the same on both processors, to the byte.
compare_traces() {
    [ -f "$dir/native/build.ninja" ] || (cd "$source" && meson setup "$dir/native" -Dnccl-examples=disabled >"$dir/native-setup.log")
    ninja -C "$dir/native" tests/test-sim-group >"$dir/native.log"
    for seed in $(seq 100); do SEED=$seed "$dir/native/tests/test-sim-group" 2>&1; done | sha256sum | cmp -s - "$results/traces" ||
        echo "the traces of the simulator's seeds 1 to 100 differ on the two processors" >"$results/traces.failed"
}

step_vm() {
    initrd
    disk
    timeout "$VM_LIMIT" qemu-system-aarch64 -M virt -cpu neoverse-n1 -smp 2 -m "$MEMORY" -accel tcg,thread=multi \
        -kernel "$dir"/kernel/boot/vmlinuz-* -initrd "$dir/initrd.gz" -append "console=ttyAMA0 quiet panic=5" \
        -drive "file=$image,if=none,format=raw,id=disk,cache=unsafe" -device virtio-blk-pci,drive=disk -nic none -nographic \
        -no-reboot </dev/null | tee "$dir/console.log" | grep --line-buffered '^machine: ' || true
    rm -rf "$results" # debugfs creates it
    debugfs -R "rdump /results $dir" "$image" 2>/dev/null
    mkdir -p "$results"
    grep -q '^machine: done' "$dir/console.log" || echo "the machine did not get to its end: $dir/console.log" >"$results/machine.failed"
    compare_traces
    grep -h '%' "$results/quickstart.log" | tail -n 1
    "$source/tests/tools/summary.py" "$results"
}

for step; do
    "step_$step"
done
