#!/usr/bin/env bash
# Run the tests on every Python from 3.11 on that this machine has, each in an environment of its own.
# `make pythons` calls this; its arguments go to pytest. ONLY="3.13" takes the Pythons named there alone.
set -euo pipefail
cd "$(dirname "$0")/.."

HOME_OF=.cache/pythons
export PIP_CACHE_DIR="$PWD/.cache/pip" PIP_DISABLE_PIP_VERSION_CHECK=1

# One program for each minor version: on the path first, then those of pyenv and uv.
find_pythons() {
    local minor program
    for minor in 11 12 13 14 15; do
        for program in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python \
            "${XDG_DATA_HOME:-$HOME/.local/share}/uv/python/cpython-3.$minor".*/bin/python; do
            # A name may be there without a Python behind it.
            if [ "$("$program" -c 'import sys; print(*sys.version_info[:2])' 2>/dev/null)" = "3 $minor" ]; then
                printf '3.%s %s\n' "$minor" "$program"
                break
            fi
        done
    done
}

prepare() { # VERSION PROGRAM
    local venv=$HOME_OF/$1 wanted
    wanted=$(pwd; "$2" --version; cksum <pyproject.toml)
    if [ "$(cat "$venv/.stamp" 2>/dev/null)" != "$wanted" ]; then
        "$2" -m venv --clear "$venv"
        "$venv/bin/python" -m pip install --quiet --editable '.[dev]'
        printf '%s\n' "$wanted" >"$venv/.stamp"
    fi
}

failed=()
while read -r version program; do
    [ -z "${ONLY:-}" ] || [[ " $ONLY " = *" $version "* ]] || continue
    printf '── Python %s (%s)\n' "$version" "$program"
    if ! prepare "$version" "$program" \
        || ! "$HOME_OF/$version/bin/python" -m pytest -n 3 --dist worksteal "$@" </dev/null; then
        failed+=("$version")
    fi
done < <(find_pythons)
[ ${#failed[@]} = 0 ] || { printf 'failed on: %s\n' "${failed[*]}" >&2; exit 1; }
