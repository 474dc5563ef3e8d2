#!/bin/sh
# packaging/build.sh wheel|portable|deb DIR: makes packages and puts them into DIR.
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
    sed -n '2,3s/^# //p' "$0" >&2
    exit 2
}
fail() {
    echo "build.sh: $*" >&2
    exit 1
}

[ $# -eq 2 ] || usage
case $1 in wheel | portable | deb) ;; *) usage ;; esac
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
machine=$(uname -m)
name=muster-$version-linux-$machine

inside() {
    [ -c "$chroot/dev/null" ] || mount --rbind /dev "$chroot/dev" # a user namespace can't make device files
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive \
        SOURCE_DATE_EPOCH="$epoch" PKG_CONFIG_PATH=/opt/muster/lib/pkgconfig chroot "$chroot" "$@"
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
        inside apt-get -q install -y --no-install-recommends build-essential pkg-config meson ninja-build python3 autoconf \
            automake libtool >>"$cache/apt.log" 2>&1 || fail "installing the compiler failed: $cache/apt.log"
}

prepare() {
    exec 9>"${cache}.lock"
    flock 9 # two builds at once would use the same folders
    [ -e "$chroot/opt/muster/sources" ] && [ -e "$chroot/opt/muster/licences/hwloc" ] && return
    [ -x "$chroot/usr/bin/meson" ] && [ -x "$chroot/usr/bin/libtoolize" ] || make_chroot
    cp "$here/libraries.sh" "$chroot/root/"
    inside /root/libraries.sh /opt/muster || fail "building the libraries failed"
}

# Those of all that is in the program.
licences() {
    cat "$root/LICENSE"
    sort "$chroot/opt/muster/sources" | while read -r library its_version; do
        printf '\n==== %s\n\nThis program contains %s %s, from Debian'"'"'s source package of that name.\n\n' \
            "$library" "$library" "$its_version"
        cat "$chroot/opt/muster/licences/$library"
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
    rm -rf "$chroot/root/source" "$chroot/root/build"
    mkdir "$chroot/root/source"
    mv "$cache/source.tar.new" "$cache/source.tar"
    tar -xf "$cache/source.tar" -C "$chroot/root/source"
    inside meson setup /root/build /root/source --prefix=/usr -Dportable=true -Dtests=disabled \
        -Dnccl-examples=disabled -Dtorchrun=false >"$cache/meson.log" 2>&1 || fail "meson failed: $cache/meson.log"
    inside ninja -C /root/build src/cli/muster examples/c-digits >"$cache/ninja.log" 2>&1 ||
        { grep -E 'error|FAILED' "$cache/ninja.log" >&2; fail "$cache/ninja.log"; }
    touch "$chroot/root/build/done"
}

build_portable() {
    pack_source
    [ -e "$chroot/root/build/done" ] && cmp -s "$cache/source.tar.new" "$cache/source.tar" || compile
    inside strip -o /root/muster /root/build/src/cli/muster
    inside strip -o /root/c-digits /root/build/examples/c-digits
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
    [ -x "$chroot/usr/bin/dh" ] || inside apt-get -q install -y --no-install-recommends debhelper >>"$cache/apt.log" 2>&1 ||
        fail "installing debhelper failed: $cache/apt.log"
    rm -rf "$chroot/root/deb"
    mkdir -p "$chroot/root/deb/source"
    tar -xf "$cache/source.tar.new" -C "$chroot/root/deb/source"
    licences >"$chroot/root/deb/source/debian/licences"
    inside env DEB_BUILD_PROFILES=pkg.muster.portable DEB_BUILD_OPTIONS=noautodbgsym \
        sh -c 'cd /root/deb/source && dpkg-buildpackage -us -uc -b' >"$cache/deb.log" 2>&1 || fail "$cache/deb.log"
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
