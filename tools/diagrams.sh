#!/usr/bin/env bash
# Download Mermaid, which draws the diagrams of the documentation, from npm into .engines/. The site serves this copy.
#
# Never fails: without npm or a network, the site shows the source of its diagrams and loads nothing from elsewhere.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The major version is the one that Material for MkDocs was made for.
version=11.17.2
folder=.engines/mermaid

if [[ -s "$folder/mermaid.min.js" && "$(cat "$folder/VERSION" 2>/dev/null)" == "$version" ]]; then exit 0; fi

if ! command -v npm >/dev/null 2>&1; then
    echo "no npm, so no Mermaid; the site will show the source of its diagrams" >&2
    exit 0
fi

mkdir -p "$folder"
unpacked="$(mktemp -d "$folder/unpacked.XXXXXX")"
trap 'rm -rf "$unpacked"' EXIT
# One file of the package is enough, and it needs none of its dependencies.
if npm pack --pack-destination "$unpacked" --ignore-scripts --no-update-notifier --loglevel=error --fetch-retries=0 \
    --fetch-timeout=60000 "mermaid@$version" >/dev/null 2>&1 &&
    tar -xzf "$unpacked/mermaid-$version.tgz" -C "$unpacked" package/dist/mermaid.min.js package/LICENSE; then
    mv "$unpacked/package/LICENSE" "$unpacked/package/dist/mermaid.min.js" "$folder/"
    echo "$version" >"$folder/VERSION"
else
    echo "Mermaid $version did not install; the site will show the source of its diagrams" >&2
fi
exit 0
