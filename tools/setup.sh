#!/usr/bin/env bash
# Make the virtual environment and install the package into it, editable.
#
#   tools/setup.sh            install what users need
#   tools/setup.sh dev        also install the tools of developers
#   tools/setup.sh dev cdk    also install the AWS CDK, which only its tests need
#
# Uses uv if it is installed, else venv and pip. Does nothing if pyproject.toml has not changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

extras="${1:-}"
with="${2:-}"
venv="${VENV:-.venv}"
python="${PYTHON:-python3}"
stamp="$venv/.installed${extras:+-${extras//,/-}}"

fresh() {
    [[ -x "$venv/bin/python" && -f "$1" && ! pyproject.toml -nt "$1" ]]
}

install_cdk() {
    if [[ "$with" != cdk ]] || fresh "$venv/.cdk"; then return; fi
    tools/cdk.sh
    touch "$venv/.cdk"
}

candidates=("$stamp")
# Any set of extras includes the bare package.
[[ -n "$extras" ]] || candidates+=("$venv"/.installed-*)
for candidate in "${candidates[@]}"; do
    if fresh "$candidate"; then
        install_cdk
        exit 0
    fi
done

requirement=".${extras:+[$extras]}"
# In a terminal, the installer shows its progress.
quiet="--quiet"
if [[ -t 2 ]]; then quiet=""; fi
echo "setting up $venv${extras:+ with $extras} (once)" >&2

if command -v uv >/dev/null 2>&1; then
    [[ -x "$venv/bin/python" ]] || uv venv --quiet "$venv"
    uv pip install $quiet --python "$venv/bin/python" --editable "$requirement"
else
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "zae-limiter needs Python 3.11 or later")'
    if [[ ! -x "$venv/bin/python" ]]; then
        # Debian may ship venv without ensurepip; the outer pip then installs into the bare environment.
        "$python" -m venv "$venv" >/dev/null 2>&1 || "$python" -m venv --clear --without-pip "$venv"
    fi
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        pip=("$venv/bin/python" -m pip)
    else
        pip=("$python" -m pip --python "$venv/bin/python")
    fi
    "${pip[@]}" install $quiet --disable-pip-version-check --editable "$requirement"
fi

if [[ ",$extras," == *,dev,* ]]; then
    tools/engines.sh
    tools/browser.sh
    tools/diagrams.sh
fi

touch "$stamp"
install_cdk
