#!/bin/sh
# The sample session of the job commands, typed into nc by a script.
#
#   sh examples/job_commands.sh
#
# It starts a server of its own on a fresh store, speaks to it, and stops it. Any nc (netcat) will do.
# To type by hand instead: holdfast serve --store jobs.db, and in another window nc 127.0.0.1 8888.
set -eu

command -v nc > /dev/null || { echo "this example needs nc (netcat)" >&2; exit 69; }
port=${PORT:-8888}
folder=$(mktemp -d)
holdfast serve --store "$folder/jobs.db" --bedrock "127.0.0.1:$port" > "$folder/ready" &
server=$!
trap 'kill $server; wait $server; rm -r "$folder"' EXIT
until grep -q ready "$folder/ready"; do sleep 0.1; done

# Say one command, given line by line, and show the reply. `Connection: close` lets nc end with it.
say() {
    printf '\n> %s\n' "$@"
    { printf '%s\n' "$@"; printf 'Connection: close\n\n'; } | nc 127.0.0.1 "$port" | tr -d '\r' | tee "$folder/reply"
    echo
}

say CreateJob 'name: foo' 'data: {"value":1}' 'repeat: finished, +1 minute'
job=$(sed -n 's/.*"jobID":\([0-9]*\).*/\1/p' "$folder/reply")

say GetJob 'name: foo'
say UpdateJob "jobID: $job" 'data: {"value":2}'
say QueryJob "jobID: $job"
say FinishJob "jobID: $job" 'data: {"value":3}'
say GetJob 'name: foo'
say Query 'query: select * from jobs;'
