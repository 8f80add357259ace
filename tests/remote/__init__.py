"""Queues on a server, over gRPC."""
