#!/bin/sh
# What must be there before the first Rust program can be linked: Rust itself and a C linker.
# Everything else is installed by `cargo xtask deps`.
set -eu

# "1.95.0": rustup takes this very version; another cargo must not be older.
channel=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
if ! version=$(RUST_BACKTRACE=0 cargo --version 2>&1); then
    # rustup explains itself over many lines; the first says what is wrong.
    echo "There is no Rust here that works: $(echo "$version" | head -n 1)" >&2
    if command -v rustup >/dev/null; then
        echo "Install the version of this project: rustup toolchain install $channel" >&2
    else
        echo "Install rustup (https://rustup.rs); it brings Rust $channel by itself." >&2
    fi
    exit 1
fi
# "cargo 1.95.0 (...)"
wanted=$(echo "$channel" | sed -n 's/^1\.\([0-9]*\).*/\1/p')
found=$(echo "$version" | sed -n 's/^cargo 1\.\([0-9]*\).*/\1/p')
if [ "${found:-0}" -lt "$wanted" ]; then
    echo "This is $version; the project needs 1.$wanted. Debian's own is older: use rustup." >&2
    exit 1
fi

if command -v cc >/dev/null; then
    exit 0
fi
echo "bootstrap needs Debian packages: gcc, libc6-dev (linking)"
if ! command -v apt-get >/dev/null; then
    echo "There is no apt-get here; install a C compiler." >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null; then
    sudo="sudo -n"
else
    echo "Only root can install packages and sudo is missing; as root:" >&2
    echo "    apt-get install gcc libc6-dev" >&2
    exit 1
fi
install() {
    $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install --quiet=2 --yes --no-install-recommends gcc libc6-dev >/dev/null
}
# A fresh machine has no package lists, an old one has stale ones; both need one update.
install 2>/dev/null || { $sudo apt-get update --quiet=2 && install; } || {
    echo "That did not work; as root: apt-get install gcc libc6-dev" >&2
    exit 1
}
