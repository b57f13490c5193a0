#!/bin/sh
# Installs header, libraries and the description for pkg-config:
#
#     cargo build --release -p sapwood-xact && crates/xact/install.sh target/release /usr/local
#
# The first folder has the libraries, the second gets include/, lib/ and lib/pkgconfig/. DESTDIR is put in front of it, but
# not into what is written.
set -eu
if [ $# -ne 2 ]; then
    echo "usage: install.sh LIBRARIES PREFIX" >&2
    exit 2
fi
own=$(dirname "$0")
to=${DESTDIR:-}$2
mkdir -p "$to/include" "$to/lib/pkgconfig"
cp "$own/include/sapwood_xact.h" "$to/include/"
cp "$1/libsapwood_xact.a" "$to/lib/"
# Under the name that programs look for, and under the one that linkers look for.
cp "$1/libsapwood_xact.so" "$to/lib/libsapwood_xact.so.0"
ln -sf libsapwood_xact.so.0 "$to/lib/libsapwood_xact.so"
sed "s|@prefix@|$2|" "$own/sapwood_xact.pc.in" >"$to/lib/pkgconfig/sapwood_xact.pc"
