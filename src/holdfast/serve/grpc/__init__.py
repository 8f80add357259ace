"""The gRPC server: `holdfast.v1.Queue`, described in `proto/holdfast/v1/queue.proto` and docs/grpc.md."""
