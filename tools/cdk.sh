#!/usr/bin/env bash
# Install the extra cdk into .engines/cdk/, with which the tests make stacks, and Debian's node, which it needs.
#
# It is installed outside the environment and without bytecode: it is large, rarely needed, and mypy would read it all.
# Without node, or an index that has it, the tests that need it are skipped with a message. Anything else is a failure.
set -uo pipefail
cd "${BASH_SOURCE[0]%/*}/.." || exit 1

folder=.engines/cdk
python="${VENV:-.venv}/bin/python"

without() {
    echo "$1, so no AWS CDK; its tests will be skipped" >&2
    exit 0
}

node() {
    local quick=(-o Acquire::Retries=0 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=120)
    local install=(apt-get "${quick[@]}" install --yes --no-install-recommends nodejs)
    export DEBIAN_FRONTEND=noninteractive
    # The lists may be missing or old.
    { "${install[@]}" || { apt-get "${quick[@]}" update && "${install[@]}"; }; } </dev/null >/dev/null 2>&1
}

if ! type -P node >/dev/null; then
    if ! type -P apt-get >/dev/null; then without "no node and no apt-get"; fi
    if [[ "$(id -u)" != 0 ]]; then without "not root, and nodejs is not installed"; fi
    node || without "nodejs did not install"
fi

mapfile -t wanted < <("$python" -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"]["cdk"], sep="\n")')
if [[ "$(cat "$folder/REQUIREMENTS" 2>/dev/null)" == "${wanted[*]}" ]]; then exit 0; fi

echo "installing ${wanted[*]} into $folder (once)" >&2
rm -rf "$folder"
if command -v uv >/dev/null 2>&1; then
    install=(uv pip install --python "$python" --quiet)
elif "$python" -m pip --version >/dev/null 2>&1; then
    install=("$python" -m pip install --quiet --disable-pip-version-check --no-compile --retries 1)
else
    install=("${PYTHON:-python3}" -m pip --python "$python" install --quiet --disable-pip-version-check --no-compile --retries 1)
fi
if ! told="$("${install[@]}" --target "$folder" "${wanted[@]}" 2>&1)"; then
    rm -rf "$folder"
    # The messages of pip and uv if no index answers, or none has it.
    if grep -qE 'from versions: none|Retrying|ailed to fetch|was not found in' <<<"$told"; then without "no index that has it"; fi
    echo "$told" >&2
    exit 1
fi
echo "${wanted[*]}" >"$folder/REQUIREMENTS"
