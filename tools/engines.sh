#!/usr/bin/env bash
# Install dynoxide, a DynamoDB engine in one binary, from npm into .engines/.
#
# Never fails: without npm, a supported platform or a network, the tests that need it are skipped with a message.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=1.2.1
folder=.engines
platform=linux-x64

if [[ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]]; then
    echo "no dynoxide for $(uname -s) on $(uname -m); its tests will be skipped" >&2
    exit 0
fi

package="$folder/node_modules/@dynoxide/$platform"
if grep -qs "\"version\": \"$version\"" "$package/package.json" && [[ -x "$package/dynoxide" ]]; then exit 0; fi

if ! command -v npm >/dev/null 2>&1; then
    echo "no npm, so no dynoxide; its tests will be skipped" >&2
    exit 0
fi

mkdir -p "$folder"
# No lock file and no package.json: they would name the registry's host, and the version is pinned above.
npm install --prefix "$folder" --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --no-update-notifier \
    --loglevel=error --fetch-retries=0 --fetch-timeout=20000 "@dynoxide/$platform@$version" >/dev/null 2>&1 ||
    echo "dynoxide $version for $platform did not install; its tests will be skipped" >&2
exit 0
