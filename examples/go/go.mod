module holdfast/examples/go

go 1.19

require (
	google.golang.org/grpc v1.65.0
	google.golang.org/protobuf v1.34.2
)
