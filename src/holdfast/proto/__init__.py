"""The messages of gRPC: the classes of `proto/holdfast/v1/queue.proto`, and how records become messages."""
