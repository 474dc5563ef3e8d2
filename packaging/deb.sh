#!/bin/sh
# deb.sh CHROOT VERSION DIR: makes the Debian packages out of what build.sh has installed in CHROOT/root/stage.
set -eu
chroot=$1 version=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
arch=$(chroot "$chroot" dpkg --print-architecture)
stage=$chroot/root/stage
rm -rf "$chroot/root/deb"
mkdir -p "$chroot/root/deb/debian" "$chroot/root/deb/torchrun/DEBIAN" "$chroot/root/deb/torchrun/usr/bin"

# --- muster ---
install -m 755 "$chroot/root/muster" "$stage/usr/bin/muster"
find "$stage/usr/lib" -name '*.so.*' -type f -exec strip {} +
find "$stage/usr/share/man" -type f -exec gzip -9n {} +
find "$stage/usr/share/man" -type l | while read -r link; do
    ln -sf "$(readlink "$link").gz" "$link.gz"
    rm "$link"
done
mkdir -p "$stage/usr/share/doc/muster" "$stage/DEBIAN"
mkdir -p "$stage/usr/share/zsh/vendor-completions"
mv "$stage/usr/share/zsh/site-functions/_muster" "$stage/usr/share/zsh/vendor-completions/_muster"
rmdir "$stage/usr/share/zsh/site-functions"
rm -rf "$stage/usr/share/licenses"
{
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo "Upstream-Name: muster"
    echo
    echo "Files: *"
    echo "Copyright: the authors of muster"
    echo "License: Apache-2.0"
    echo " On Debian systems, the full text is in /usr/share/common-licenses/Apache-2.0."
    echo "Comment: /usr/bin/muster contains, from Debian's sources:"
    sed 's/^/ /' "$chroot/opt/muster/sources"
    echo " Their licences are in /usr/share/doc/muster/licences.gz."
} >"$stage/usr/share/doc/muster/copyright"
gzip -9n <"$here/../CHANGELOG.md" >"$stage/usr/share/doc/muster/changelog.gz"
cp "$here/../README.md" "$stage/usr/share/doc/muster/"
gzip -9n <"$out/muster-$version-licences.txt" >"$stage/usr/share/doc/muster/licences.gz"
echo 'activate-noawait ldconfig' >"$stage/DEBIAN/triggers" # libmuster-store

# What the program needs is read from the program.
cat >"$chroot/root/deb/debian/control" <<EOT
Source: muster

Package: muster
Architecture: any
EOT
needs=$(chroot "$chroot" sh -c 'cd /root/deb && dpkg-shlibdeps -O /root/stage/usr/bin/muster 2>/dev/null' |
    sed -n 's/^shlibs:Depends=//p')
[ -n "$needs" ] || { echo "deb.sh: dpkg-shlibdeps found nothing" >&2; exit 1; }
cat >"$stage/DEBIAN/control" <<EOT
Package: muster
Version: $version
Architecture: $arch
Maintainer: the authors of muster <muster@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f 1)
Depends: $needs
Suggests: python3, muster-torchrun
Section: science
Priority: optional
Description: launcher for distributed training
 Starts the workers of a training job on each node, gives them their ranks and
 the address of a store where they meet, restarts all of them when one fails,
 and ends them all when the job ends. It takes torchrun's options.
EOT
find "$stage" -type d -exec chmod 755 {} +
(cd "$stage" && find . -path ./DEBIAN -prune -o -type f -print | sed 's,^\./,,' | LC_ALL=C sort |
    xargs -d '\n' md5sum >DEBIAN/md5sums)

# --- muster-torchrun ---
link=$chroot/root/deb/torchrun
ln -s muster "$link/usr/bin/torchrun"
mkdir -p "$link/usr/share/bash-completion/completions" "$link/usr/share/fish/vendor_completions.d"
ln -s muster "$link/usr/share/bash-completion/completions/torchrun"
ln -s muster.fish "$link/usr/share/fish/vendor_completions.d/torchrun.fish"
cat >"$link/DEBIAN/control" <<EOT
Package: muster-torchrun
Version: $version
Architecture: all
Maintainer: the authors of muster <muster@localhost>
Depends: muster (= $version)
Section: science
Priority: optional
Description: muster under the name of torchrun
 The link /usr/bin/torchrun, for scripts that call torchrun. Another package's
 /usr/bin/torchrun becomes /usr/bin/torchrun.diverted meanwhile.
EOT
divert='--package muster-torchrun --rename --divert /usr/bin/torchrun.diverted /usr/bin/torchrun'
printf '#!/bin/sh\nset -e\n[ "$1" = upgrade ] || dpkg-divert --add %s\n' "$divert" >"$link/DEBIAN/preinst"
printf '#!/bin/sh\nset -e\n[ "$1" != remove ] || dpkg-divert --remove %s\n' "$divert" >"$link/DEBIAN/postrm"
chmod 755 "$link/DEBIAN/preinst" "$link/DEBIAN/postrm"

for folder in "$stage" "$link"; do
    find "$folder" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
done
chroot "$chroot" dpkg-deb -Zxz --root-owner-group -b /root/stage "/root/deb/muster_${version}_$arch.deb" >/dev/null
chroot "$chroot" dpkg-deb -Zxz --root-owner-group -b /root/deb/torchrun "/root/deb/muster-torchrun_${version}_all.deb" >/dev/null
cp "$chroot/root/deb"/*.deb "$out/"
ls "$out"/*.deb >&2
