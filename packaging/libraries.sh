#!/bin/sh
# packaging/libraries.sh PREFIX [MACHINE]: builds the archives that the portable file links in, from Debian's source packages.
# build.sh runs it inside its Debian 11, where deb-src names a later Debian: its OpenSSL 3, libevent, cJSON and hwloc, with
# Debian's patches, built with Debian 11's compiler and glibc. PREFIX/sources lists the versions, and
# PREFIX/licences has their copyrights. MACHINE: another one than this, such as aarch64.
set -eu
prefix=$1
machine=${2:-}
cross=${machine:+$machine-linux-gnu-}
host=${machine:+--host=$machine-linux-gnu}
jobs=$(nproc)
work=$prefix/build
export DEBIAN_FRONTEND=noninteractive
mkdir -p "$work" "$prefix/lib/pkgconfig" "$prefix/licences"

flags='-O2 -g0 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffunction-sections -fdata-sections'

fetch() { # NAME: unpacks its newest source to $work/NAME and records the version; an older one if the mirror lacks it
    rm -rf "$work/$1" "$work/$1.unpack" "$work/$1.fetch.log"
    for version in $(apt-cache showsrc "$1" | sed -n 's/^Version: //p' | sort -rV); do
        rm -rf "$work/$1.unpack"
        mkdir "$work/$1.unpack"
        if (cd "$work/$1.unpack" && apt-get -q source "$1=$version") >>"$work/$1.fetch.log" 2>&1; then
            mv "$work/$1.unpack"/*/ "$work/$1"
            echo "$1 $version" >"$work/$1.version"
            SOURCE_DATE_EPOCH=$(cd "$work/$1" && dpkg-parsechangelog -S Timestamp) # the same whenever it is built
            export SOURCE_DATE_EPOCH
            cp "$work/$1/debian/copyright" "$prefix/licences/$1"
            return
        fi
        echo "no source of $1 $version at the mirror; trying the one before" >&2
    done
    cat "$work/$1.fetch.log"
    exit 1
}

step() { # NAME COMMAND...: in $work/NAME, with its output in a log that is shown if it fails
    name=$1
    shift
    (cd "$work/$name" && "$@" >>"$work/$name.log" 2>&1) || { tail -n 40 "$work/$name.log"; exit 1; }
}

# Certificates are where Debian, Ubuntu and SUSE have them; io/net/tls.c knows other places.
build_openssl() {
    fetch openssl
    configure=./config
    [ -z "$machine" ] || configure="./Configure linux-$machine --cross-compile-prefix=$cross"
    # shellcheck disable=SC2086
    step openssl $configure --prefix="$prefix" --libdir=lib --openssldir=/etc/ssl no-shared no-tests no-legacy no-module \
        no-engine no-comp no-ssl3 no-tls1 no-tls1_1 no-dtls no-srp no-cms no-ct no-ts no-cmp no-idea no-camellia \
        no-seed no-aria no-bf no-cast no-des no-rc2 no-rc4 no-md4 no-mdc2 no-rmd160 no-whirlpool no-sm2 no-sm3 no-sm4 \
        no-siphash no-gost no-uplink no-afalgeng "$flags"
    step openssl make -j"$jobs" build_libs
    step openssl make install_dev
}

build_libevent() {
    fetch libevent
    step libevent autoreconf -fi # Debian's patches change its input
    step libevent env CFLAGS="$flags -I$prefix/include" LDFLAGS="-L$prefix/lib" LIBS='-ldl -lpthread' \
        PKG_CONFIG_PATH="$prefix/lib/pkgconfig" ./configure $host --prefix="$prefix" --enable-static --disable-shared \
        --disable-samples --disable-libevent-regress --disable-debug-mode
    step libevent make -j"$jobs" install
}

build_cjson() {
    fetch cjson
    step cjson "${cross}gcc" $flags -c cJSON.c -o cJSON.o
    step cjson "${cross}ar" rcs "$prefix/lib/libcjson.a" cJSON.o
    mkdir -p "$prefix/include/cjson"
    cp "$work/cjson/cJSON.h" "$prefix/include/cjson/"
    cat >"$prefix/lib/pkgconfig/libcjson.pc" <<EOT
Name: libcjson
Description: JSON parser
Version: $(sed -n 's/^cjson \([0-9.]*\).*/\1/p' "$work/cjson.version")
Libs: -L$prefix/lib -lcjson
Cflags: -I$prefix/include -I$prefix/include/cjson
EOT
}

# The kernel's sysfs has all that muster asks for: no libpciaccess, udev or libxml2, which would need their own libraries.
build_hwloc() {
    fetch hwloc
    step hwloc autoreconf -fi
    step hwloc env CFLAGS="$flags" ./configure $host --prefix="$prefix" --enable-static --disable-shared --disable-pci \
        --disable-libudev --disable-libxml2 --disable-cairo --disable-opencl --disable-cuda --disable-nvml --disable-rsmi \
        --disable-levelzero --disable-gl --disable-plugins --disable-doxygen
    step hwloc make -C include -j"$jobs" install
    step hwloc make -C hwloc -j"$jobs" install
    step hwloc make install-hwlocpkgconfigDATA
}

for name in openssl libevent cjson hwloc; do
    if [ ! -e "$work/$name.done" ] || [ ! -e "$prefix/licences/$name" ]; then
        echo "building $name" >&2
        rm -f "$work/$name.log"
        "build_$name"
        rm -rf "$work/$name" "$work/$name.unpack"
        touch "$work/$name.done"
    fi
done
cat "$work"/*.version >"$prefix/sources"
