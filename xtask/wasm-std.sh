#!/usr/bin/env bash
# Gives the active Rust toolchain the target wasm32-unknown-unknown where rustup cannot download it: builds `std` from
# Debian's copy of the same release's source and puts the libraries where rustup would. Needs apt; about 40 s on 2 cores.
set -euo pipefail

sysroot=$(rustc --print sysroot)
libraries=$sysroot/lib/rustlib/wasm32-unknown-unknown/lib
release=$(rustc -vV | sed -n 's/^release: //p')
command -v apt-get >/dev/null || { echo "no apt-get: the standard library's source cannot be had" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# A list of sources of its own, on the mirror that the machine already uses, so that the machine's stay as they are.
mkdir -p lists/partial
apt-get -q update
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
echo "deb-src $mirror sid main" >sources.list
options=(-o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::Lists=$work/lists")
apt-get -q "${options[@]}" update
version=$(apt-cache "${options[@]}" showsrc rustc | sed -n "s/^Version: \(${release}+.*\)/\1/p" | head -n 1)
[ -n "$version" ] || { echo "Debian has no source of rustc $release" >&2; exit 1; }
apt-get -q "${options[@]}" source --download-only --tar-only "rustc=$version"

mkdir source
tar -xf rustc_*.orig.tar.xz -C source --strip-components=1 --wildcards '*/library/*'
mkdir -p "$sysroot/lib/rustlib/src/rust"
cp -r source/library "$sysroot/lib/rustlib/src/rust/library"
trap 'rm -rf "$work" "$sysroot/lib/rustlib/src"' EXIT

# Without embedded bitcode a later build with `lto` does not link.
mkdir -p seed/src
: >seed/src/lib.rs
printf '[package]\nname = "seed"\nversion = "0.0.0"\nedition = "2021"\n' >seed/Cargo.toml
(
  cd seed
  export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$work/target" CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS=-Cembed-bitcode=yes
  cargo build --release --target wasm32-unknown-unknown -Zbuild-std=std,panic_abort,proc_macro
)
mkdir -p "$libraries"
find "$work/target/wasm32-unknown-unknown/release/deps" -name '*.rlib' ! -name 'libseed*' -exec cp {} "$libraries/" \;
echo "installed $(find "$libraries" -name '*.rlib' | wc -l) libraries into $libraries"
