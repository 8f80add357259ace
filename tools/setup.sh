#!/usr/bin/env bash
# Make .venv with Holdfast and all that its developers need. `make setup` calls this; `make run` calls it with
# the word `run`, which installs no more than what `import holdfast` needs.
#
# When nothing has changed it does nothing: the stamp in .venv tells the folder and the pyproject.toml
# that the environment was made for. All that is downloaded is kept in .cache, inside the project.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" = run ]; then
    STAMP=.venv/.stamp-run EXTRAS='' TIME="half a minute"
else
    STAMP=.venv/.stamp EXTRAS='[dev]' TIME="a minute or two"
fi
LOG=.cache/setup.log
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

say() { printf '%s\n' "$*"; }
refuse() { printf 'setup: %s\n' "$*" >&2; exit 1; }

version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
wanted() { pwd; cat pyproject.toml tools/setup.sh | cksum; }

# A .venv knows the folder that it was made in and the Python that it was made of: when either has
# gone, it cannot be mended.
usable() {
    new_enough .venv/bin/python || return 1
    for stamp in .venv/.stamp*; do
        [ ! -f "$stamp" ] || [ "$(head -n 1 "$stamp")" = "$PWD" ] || return 1
    done
}

choose_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    refuse "Python 3.11 or newer is needed; ${PYTHON:-python3} is $(version_of "${PYTHON:-python3}" || echo "not there")." \
        "Say which one to take: make setup PYTHON=/path/to/python3.12"
}

make_venv() {
    local python=$1 trouble
    say "Making .venv with Python $(version_of "$python")."
    trouble=$("$python" -m venv --clear .venv 2>&1) && return

    rm -rf .venv
    say "That did not work. $python said: $trouble" >&2
    command -v apt-get >/dev/null || refuse "install this Python's venv module, then try again."
    [ "$(id -u)" = 0 ] || refuse "try again after: sudo apt-get install python3-venv"
    say "Installing python3-venv, which this system keeps apart from Python."
    apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
    "$python" -m venv --clear .venv || refuse "$python cannot make a virtual environment."
}

# What pip says goes to a file; people see one line for each thing that is fetched.
install() {
    say "Installing Holdfast${EXTRAS:+ and its tools} in .venv: $TIME the first time."
    mkdir -p .cache
    .venv/bin/python -m pip install --progress-bar off --editable ".$EXTRAS" 2>&1 | tee "$LOG" | narrate && return

    tail -n 30 "$LOG" >&2
    refuse "pip could not install what is needed. All that it said is in $LOG."
}

narrate() {
    local verb what rest
    while read -r verb what rest; do
        case "$verb $what $rest" in
            Collecting*) say "  getting ${what%%[<>=~!;[]*}" ;;
            Processing*) what=${what##*/} && say "  getting ${what%%-*}" ;;
            "Installing build"*started) say "  getting what builds it" ;;
            "Installing collected"*) say "  installing" ;;
        esac
    done
}

is_current() { [ "$(cat "$1" 2>/dev/null)" = "$(wanted)" ]; }

# The whole has the part.
if usable && { is_current "$STAMP" || is_current .venv/.stamp; }; then
    say "Set up already: .venv, Python $(version_of .venv/bin/python)."
    exit 0
fi
if ! usable; then
    python=$(choose_python)
    make_venv "$python"
fi
install
wanted >"$STAMP"
say "Ready: .venv, Python $(version_of .venv/bin/python)."
