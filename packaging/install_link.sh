#!/bin/sh
# install_link.sh LINK TARGET: for meson.add_install_script(), since install_symlink() needs meson 0.61. LINK is relative to
# the prefix, or absolute.
set -eu
case $1 in
/*) link=${DESTDIR:-}$1 ;;
*) link=$MESON_INSTALL_DESTDIR_PREFIX/$1 ;;
esac
[ -n "${MESON_INSTALL_QUIET:-}" ] || echo "Installing a link $link to $2"
mkdir -p "${link%/*}"
ln -sfn "$2" "$link"
