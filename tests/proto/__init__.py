"""The messages of gRPC."""
