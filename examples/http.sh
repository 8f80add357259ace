#!/bin/sh
# A producer and a worker in plain curl. Needs holdfast-queue[server] and curl; PORT is where the server listens.
set -eu
PORT=${PORT:-8080}
folder=$(mktemp -d)
holdfast serve --store "$folder/jobs.db" --http "127.0.0.1:$PORT" >"$folder/ready" &
server=$!
trap 'kill $server 2>/dev/null; wait $server; rm -rf "$folder"' EXIT
until grep -q ready "$folder/ready"; do sleep 0.1; done
api="http://localhost:$PORT"

echo "# add a job"
curl -sS "$api/v1/jobs" -d '{"task": "resize", "data": {"path": "a.png", "width": 200}}' | tee "$folder/added"
id=$(sed 's/.*"id":"\([0-9]*\)".*/\1/' "$folder/added")
echo
echo "# add many, a line for each"
printf '{"task":"mail","data":{"n":1}}\n{"task":"mail","data":{"n":2}}\n' |
    curl -sS "$api/v1/jobs" -H 'Content-Type: application/x-ndjson' --data-binary @-
echo "# as the document of Jobber has it"
curl -sS "$api/jobber/queue" -d '{"type": "job-type", "payload": {"free": "form"}}'
echo
echo "# a worker: wait for a job, work, answer"
curl -sS "$api/v1/claims" -d '{"tasks": ["resize"], "lease_ms": 60000, "wait": 10}' >"$folder/claimed"
owner=$(sed 's/.*"owner":\([0-9]*\).*/\1/' "$folder/claimed")
claim=$(sed 's/.*"claim":\([0-9]*\).*/\1/' "$folder/claimed")
curl -sS "$api/v1/jobs/$id/progress" -d "{\"owner\": $owner, \"claim\": $claim, \"fraction\": 0.5}" >/dev/null
curl -sS "$api/v1/jobs/$id/answer" -d "{\"owner\": $owner, \"claim\": $claim, \"result\": {\"width\": 200}}" >/dev/null
echo "# the producer: wait for the result"
curl -sS "$api/v1/jobs/$id/result?wait=10"
echo
echo "# how many jobs there are"
curl -sS "$api/v1/counts"
echo
