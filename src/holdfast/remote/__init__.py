"""A queue on a server: the connection over gRPC that `holdfast.connect("grpc://host:port")` has."""
