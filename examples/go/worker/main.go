// Runs jobs of the task "resize" until it is told to stop:  go run ./worker 127.0.0.1:9090
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "holdfast/examples/go/holdfastv1"
)

const (
	leaseMs   = 30000
	credit    = 10
	reconnect = time.Second
)

func resize(data []byte) (string, error) {
	var given struct{ N int }
	if err := json.Unmarshal(data, &given); err != nil {
		return "", err
	}
	return fmt.Sprintf("resized %d", given.N), nil
}

// A worker on one stream. A stream takes one message at a time, so they are sent under the lock.
type worker struct {
	stream  pb.Queue_WorkClient
	lock    sync.Mutex
	running map[int64]*pb.Hold
}

func (w *worker) send(message *pb.FromWorker) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if err := w.stream.Send(message); err != nil {
		log.Print(err)
	}
}

func (w *worker) run(claimed *pb.Claimed) {
	job := claimed.Job
	hold := &pb.Hold{JobId: job.Id, Owner: job.Owner, Claim: &job.Claim}
	w.note(job.Id, hold)
	answer := &pb.AnswerRequest{Hold: hold}
	if result, err := resize([]byte(claimed.Data.GetJson())); err != nil {
		answer.Code, answer.Error = pb.Code_CODE_ERROR, err.Error()
	} else {
		text, _ := json.Marshal(result)
		answer.Result = &pb.Body{Body: &pb.Body_Json{Json: string(text)}}
	}
	w.note(job.Id, nil)
	w.send(&pb.FromWorker{Answers: []*pb.AnswerRequest{answer}, Credit: 1})
}

func (w *worker) note(id int64, hold *pb.Hold) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if hold == nil {
		delete(w.running, id)
	} else {
		w.running[id] = hold
	}
}

// A lease is extended while its job runs.
func (w *worker) renew(ctx context.Context) {
	ticker := time.NewTicker(leaseMs / 3 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		message := &pb.FromWorker{}
		w.lock.Lock()
		for _, hold := range w.running {
			message.Extends = append(message.Extends, &pb.ExtendRequest{Hold: hold, LeaseMs: leaseMs})
		}
		w.lock.Unlock()
		if len(message.Extends) > 0 {
			w.send(message)
		}
	}
}

func work(queue pb.QueueClient) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := queue.Work(ctx)
	if err != nil {
		return err
	}
	w := &worker{stream: stream, running: map[int64]*pb.Hold{}}
	go w.renew(ctx)
	w.send(&pb.FromWorker{Start: &pb.Start{Tasks: []string{"resize"}, LeaseMs: leaseMs}, Credit: credit})
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		received := &pb.FromWorker{}
		for _, claimed := range message.Jobs {
			received.Received = append(received.Received, claimed.Job.Id)
			go w.run(claimed)
		}
		if len(received.Received) > 0 {
			w.send(received)
		}
		for _, settled := range message.Settled {
			if settled.Error != nil {
				log.Printf("job %d: %s", settled.JobId, settled.Error.Text)
			}
		}
	}
}

func main() {
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	for {
		log.Print(work(pb.NewQueueClient(connection)))
		time.Sleep(reconnect)
	}
}
