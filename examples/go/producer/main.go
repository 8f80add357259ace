// Adds jobs and waits for the first result:  go run ./producer 127.0.0.1:9090 3
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"google.golang.org/grpc"

	pb "holdfast/examples/go/holdfastv1"
)

func main() {
	address, count := os.Args[1], 3
	if len(os.Args) > 2 {
		count, _ = strconv.Atoi(os.Args[2])
	}
	connection, err := grpc.Dial(address, grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	queue, ctx := pb.NewQueueClient(connection), context.Background()

	var jobs []*pb.NewJob
	for n := 0; n < count; n++ {
		data := &pb.Body{Body: &pb.Body_Json{Json: fmt.Sprintf(`{"n": %d}`, n)}}
		jobs = append(jobs, &pb.NewJob{Task: "resize", Data: data})
	}
	added, err := queue.Add(ctx, &pb.AddRequest{Jobs: jobs})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("added", added.JobIds)

	reply, err := queue.Wait(ctx, &pb.WaitRequest{JobId: added.JobIds[0], WaitMs: 30000})
	if err != nil {
		log.Fatal(err)
	}
	if reply.Ended == nil {
		fmt.Println("result not yet")
		return
	}
	fmt.Println("result", reply.Ended.Result.GetJson())
}
