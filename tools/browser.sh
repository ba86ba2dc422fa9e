#!/usr/bin/env bash
# Install Debian's chromium and its driver, with which the tests open pages.
#
# Never fails: without apt-get, root or a network, the tests that need a browser are skipped with a message.
set -uo pipefail

there() { command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; }
without() {
    echo "$1, so no browser; its tests will be skipped" >&2
    exit 0
}

if there; then exit 0; fi
if ! command -v apt-get >/dev/null 2>&1; then without "no apt-get"; fi
if [[ "$(id -u)" != 0 ]]; then without "not root, and chromium and chromium-driver are not installed"; fi

export DEBIAN_FRONTEND=noninteractive
quick=(-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=120)
install() { apt-get "${quick[@]}" install --yes --no-install-recommends chromium chromium-driver </dev/null >/dev/null 2>&1; }
# The lists may be missing or old.
install || { apt-get "${quick[@]}" update >/dev/null 2>&1 && install; }
there || without "chromium and chromium-driver did not install"
exit 0
