// worker.go
// JOBS_URL=http://127.0.0.1:8080 CHANNEL_TOKEN=orders-token CONSUMER_TOKEN=mailer-token go run worker.go
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

type job struct {
	ID      string `json:"id"`
	Lease   string `json:"lease"`
	Attempt int    `json:"attempt"`
	Message struct {
		Payload  string `json:"payload"`
		Encoding string `json:"encoding"`
	} `json:"message"`
}

type held struct {
	ID     string `json:"id"`
	Lease  string `json:"lease"`
	Reason string `json:"reason,omitempty"`
}

var queue = os.Getenv("JOBS_URL") + "/v2/channel/orders/consumer/mailer/jobs"

func ask(ctx context.Context, what string, body, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, queue+"/"+what, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Broker-Channel-Token", os.Getenv("CHANNEL_TOKEN"))
	request.Header.Set("X-Broker-Consumer-Token", os.Getenv("CONSUMER_TOKEN"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	// The status of one item is that of the answer; its result is in the body in any case.
	if response.StatusCode >= 300 && response.StatusCode != 404 && response.StatusCode != 409 {
		return fmt.Errorf("%s: %s %s", what, response.Status, said)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(said, answer)
}

func work(taken job) {
	ctx, done := context.WithCancel(context.Background())
	defer done()
	mine := held{ID: taken.ID, Lease: taken.Lease}
	go func() {
		beat := time.NewTicker(10 * time.Second)
		defer beat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
				_ = ask(ctx, "heartbeat", map[string]any{"jobs": []held{mine}, "lease_seconds": 30}, nil)
			}
		}
	}()
	what := "complete"
	if err := handle(taken); err != nil {
		what, mine.Reason = "fail", err.Error()
	}
	if err := ask(context.Background(), what, map[string]any{"jobs": []held{mine}}, nil); err != nil {
		log.Print(err)
	}
}

func handle(taken job) error {
	payload := []byte(taken.Message.Payload)
	if taken.Message.Encoding == "base64" {
		decoded, err := base64.StdEncoding.DecodeString(taken.Message.Payload)
		if err != nil {
			return err
		}
		payload = decoded
	}
	var order struct {
		Order int `json:"order"`
	}
	if err := json.Unmarshal(payload, &order); err != nil {
		return err
	}
	fmt.Printf("order %d, attempt %d\n", order.Order, taken.Attempt)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	for ctx.Err() == nil {
		var taken struct {
			Jobs []job `json:"jobs"`
		}
		wanted := map[string]any{"max": 10, "lease_seconds": 30, "wait_seconds": 20}
		if err := ask(ctx, "claim", wanted, &taken); err != nil {
			if ctx.Err() == nil {
				log.Print(err)
				time.Sleep(time.Second)
			}
			continue
		}
		var running sync.WaitGroup
		for _, each := range taken.Jobs {
			running.Add(1)
			go func() { defer running.Done(); work(each) }()
		}
		running.Wait()
	}
}
