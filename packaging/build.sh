#!/bin/sh
# packaging/build.sh wheel|portable|deb DIR [x86_64|aarch64]: makes packages for this machine, or for the other kind, and
# puts them into DIR.
#
#   portable  muster-VERSION-linux-ARCH: one file that needs only glibc 2.28 or later. libevent, OpenSSL, cJSON and hwloc are
#             in it, their licences and a .sha256 beside it; NVML is loaded if found. Also c-digits, the example in C, to try it.
#   wheel     muster-VERSION-py3-none-manylinux_….whl: the portable file and the Python package of packaging/python, and
#             muster_torchrun-VERSION-….whl: a torchrun, for the extra muster[torchrun].
#   deb       the packages of debian/control, with the libraries linked into muster: one set for Debian 11 and later.
#
# Everything is built in a Debian 11 of its own, whose glibc is 2.31, which mmdebstrap makes at the first call: this needs
# a few hundred MB and ten minutes. Without root it runs in a user namespace, for which newuidmap (Debian's uidmap) and
# ranges in /etc/subuid and /etc/subgid must be there. It stays in $MUSTER_PACKAGING_CACHE (default: ~/.cache/muster-packaging) for the
# next call; remove that folder to take newer sources of the libraries.
#
#   MUSTER_PACKAGING_MIRROR    mirror of Debian's packages; default: mmdebstrap's
#   MUSTER_PACKAGING_SECURITY  mirror of its security updates; default: the same with -security behind it
set -eu

usage() {
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
}
fail() {
    echo "build.sh: $*" >&2
    exit 1
}

[ $# -eq 2 ] || [ $# -eq 3 ] || usage
case $1 in wheel | portable | deb) ;; *) usage ;; esac
machine=${3:-$(uname -m)}
case $machine in x86_64) debian=amd64 ;; aarch64) debian=arm64 ;; *) usage ;; esac
if [ "$(id -u)" != 0 ]; then # every owner of a file in the Debian 11 is one of the user's own ids
    unshare --map-auto --map-root-user true 2>/dev/null ||
        fail "needs root, or a user namespace: install uidmap, and give $(id -un) a range in /etc/subuid and /etc/subgid"
    exec unshare --map-auto --map-root-user --mount --pid --fork --mount-proc "$0" "$@"
fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
mkdir -p "$2"
out=$(cd "$2" && pwd)
cache=${MUSTER_PACKAGING_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/muster-packaging}
suite=bullseye  # glibc 2.31
sources=bookworm # of the libraries
chroot=$cache/$suite
version=$(sed -n "s/^ *version: '\(.*\)',$/\1/p" "$root/meson.build" | head -n 1)
prefix=/opt/muster cross=
[ "$machine" = "$(uname -m)" ] || { prefix=/opt/muster-$machine cross=$machine-linux-gnu-; }
built=/root/build${cross:+-$machine}
name=muster-$version-linux-$machine

inside() {
    [ -c "$chroot/dev/null" ] || mount --rbind /dev "$chroot/dev" # a user namespace can't make device files
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive \
        SOURCE_DATE_EPOCH="$epoch" PKG_CONFIG_PATH=$prefix/lib/pkgconfig chroot "$chroot" "$@"
}

# The time of the last commit: the same source gives the same files.
epoch=$(git -C "$root" log -1 --format=%ct 2>/dev/null) || epoch=$(stat -c %Y "$root/CHANGELOG.md")
export SOURCE_DATE_EPOCH=$epoch

make_chroot() {
    command -v mmdebstrap >/dev/null || fail "no mmdebstrap on PATH; install Debian's package mmdebstrap"
    echo "build.sh: making a Debian 11 in $chroot" >&2
    mkdir -p "$cache"
    rm -rf "$chroot"
    # Only the release itself: its updates change, and a mirror may lack the newest.
    mmdebstrap --mode=root --variant=minbase --include=ca-certificates --setup-hook='sed -i 1q "$1/etc/apt/sources.list"' \
        "$suite" "$chroot" ${MUSTER_PACKAGING_MIRROR:+"$MUSTER_PACKAGING_MIRROR"} >"$cache/mmdebstrap.log" 2>&1 ||
        fail "mmdebstrap failed: $cache/mmdebstrap.log"
    mirror=$(sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' "$chroot/etc/apt/sources.list")
    security=${MUSTER_PACKAGING_SECURITY:-${mirror%/}-security}
    {
        echo "deb-src $mirror $sources main"
        echo "deb-src $mirror $sources-updates main"
        echo "deb-src $security $sources-security main"
    } >>"$chroot/etc/apt/sources.list"
    cp /etc/resolv.conf "$chroot/etc/resolv.conf"
    inside apt-get -q update >"$cache/apt.log" 2>&1 &&
        install_there build-essential pkg-config meson ninja-build python3 autoconf automake libtool
}

install_there() {
    inside apt-get -q install -y --no-install-recommends "$@" >>"$cache/apt.log" 2>&1 || fail "installing $* failed: $cache/apt.log"
}

# libc6 of the other machine is for dpkg-shlibdeps, and for muster, which writes its completions when it is built; qemu runs
# it then.
cross_compiler() {
    inside dpkg --add-architecture "$debian"
    inside apt-get -q update >>"$cache/apt.log" 2>&1 || fail "apt-get update failed: $cache/apt.log"
    install_there "crossbuild-essential-$debian" "libc6:$debian"
    inside sh -c 'cd /opt && apt-get -q download qemu-user-static && dpkg -x qemu-user-static_*.deb qemu' >>"$cache/apt.log" 2>&1 ||
        fail "no qemu-user-static: $cache/apt.log"
    ln -sf pkg-config "$chroot/usr/bin/${cross}pkg-config"
    cat >"$chroot/opt/cross-$machine.ini" <<END
[binaries]
c = '${cross}gcc'
ar = '${cross}ar'
strip = '${cross}strip'
pkgconfig = '${cross}pkg-config'
exe_wrapper = '/opt/qemu/usr/bin/qemu-$machine-static'
[host_machine]
system = 'linux'
cpu_family = '$machine'
cpu = '$machine'
endian = 'little'
END
}

prepare() {
    exec 9>"${cache}.lock"
    flock 9 # two builds at once would use the same folders
    [ -e "$chroot$prefix/sources" ] && [ -e "$chroot$prefix/licences/hwloc" ] && return
    [ -x "$chroot/usr/bin/meson" ] && [ -x "$chroot/usr/bin/libtoolize" ] || make_chroot
    [ -z "$cross" ] || cross_compiler
    cp "$here/libraries.sh" "$chroot/root/"
    inside /root/libraries.sh "$prefix" ${cross:+"$machine"} || fail "building the libraries failed"
}

# Those of all that is in the program.
licences() {
    cat "$root/LICENSE"
    sort "$chroot$prefix/sources" | while read -r library its_version; do
        printf '\n==== %s\n\nThis program contains %s %s, from Debian'"'"'s source package of that name.\n\n' \
            "$library" "$library" "$its_version"
        cat "$chroot$prefix/licences/$library"
    done
}

pack_source() {
    mkdir -p "$(dirname "$cache")"
    prepare
    # File times mean nothing after a checkout, so the content decides whether to build again.
    (cd "$root" && if [ -e .git ]; then git ls-files -co --exclude-standard; else find . -type f; fi | sed '/^build/d' |
        while read -r file; do [ ! -e "$file" ] || echo "$file"; done | LC_ALL=C sort |
        tar -cf - --no-recursion --owner=0 --group=0 --mtime="@$epoch" -T -) >"$cache/source.tar.new"
}

compile() {
    rm -rf "$chroot/root/source" "$chroot$built"
    mkdir "$chroot/root/source"
    mv "$cache/source.tar.new" "$cache/source${cross:+-$machine}.tar"
    tar -xf "$cache/source${cross:+-$machine}.tar" -C "$chroot/root/source"
    inside meson setup $built /root/source --prefix=/usr -Dportable=true -Dtests=disabled -Dnccl-examples=disabled \
        -Dtorchrun=false ${cross:+--cross-file=/opt/cross-$machine.ini} >"$cache/meson.log" 2>&1 || fail "meson failed: $cache/meson.log"
    inside ninja -C $built src/cli/muster examples/c-digits >"$cache/ninja.log" 2>&1 ||
        { grep -E 'error|FAILED' "$cache/ninja.log" >&2; fail "$cache/ninja.log"; }
    touch "$chroot$built/done"
}

build_portable() {
    pack_source
    [ -e "$chroot$built/done" ] && cmp -s "$cache/source.tar.new" "$cache/source${cross:+-$machine}.tar" || compile
    inside ${cross}strip -o /root/muster $built/src/cli/muster
    inside ${cross}strip -o /root/c-digits $built/examples/c-digits
    "$here/needs.py" "$chroot/root/muster" --at-most 2.28
    "$root/tests/lint/hardening_check.py" readelf "$chroot/root/muster" --fortified >"$cache/hardening.log" || fail "$(cat "$cache/hardening.log")"
    install -m 755 "$chroot/root/muster" "$out/$name"
    (cd "$out" && sha256sum "$name" >"$name.sha256")
    install -m 755 "$chroot/root/c-digits" "$out/c-digits"
    licences >"$out/muster-$version-licences.txt"
    echo "$out/$name" >&2
}

build_deb() {
    pack_source
    [ -x "$chroot/usr/bin/dh" ] || install_there debhelper
    rm -rf "$chroot/root/deb"
    mkdir -p "$chroot/root/deb/source"
    tar -xf "$cache/source.tar.new" -C "$chroot/root/deb/source"
    licences >"$chroot/root/deb/source/debian/licences"
    inside env DEB_BUILD_PROFILES=pkg.muster.portable DEB_BUILD_OPTIONS=noautodbgsym ${cross:+MESON_CROSS_FILE=/opt/cross-$machine.ini} \
        sh -c "cd /root/deb/source && dpkg-buildpackage -us -uc -b ${cross:+-d -a$debian}" >"$cache/deb.log" 2>&1 || fail "$cache/deb.log"
    cp "$chroot/root/deb"/*.deb "$out/"
    ls "$out"/*.deb >&2
}

case $1 in
portable) build_portable ;;
wheel)
    build_portable
    "$here/wheel.py" "$version" "$out/$name" "$out" "$out/muster-$version-licences.txt"
    ;;
deb) build_deb ;;
esac
