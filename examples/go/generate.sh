#!/bin/sh
# Writes holdfastv1/ from the proto file; needs protoc, protoc-gen-go and protoc-gen-go-grpc.
set -eu
cd "$(dirname "$0")"
mkdir -p holdfastv1
package="Mholdfast/v1/queue.proto=holdfast/examples/go/holdfastv1"
protoc -I "${HOLDFAST_PROTO:-../../proto}" \
    --go_out=. --go_opt="$package" --go_opt=module=holdfast/examples/go \
    --go-grpc_out=. --go-grpc_opt="$package" --go-grpc_opt=module=holdfast/examples/go \
    holdfast/v1/queue.proto
