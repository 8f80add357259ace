"""A queue on a server: the connection over gRPC that `holdfast.connect("grpc://host:port")` has."""

import os

# Read by grpc when it is imported: without it a forked child that uses gRPC again hangs. A program that has
# imported grpc before us sets it by itself.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")
