package main

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/pcgroups"
)

// task is what a worker is told; see worklog.py.
type task struct {
	URL           string  `json:"url"`
	Kind          string  `json:"kind"`
	Stream        string  `json:"stream"`
	Group         string  `json:"group"`
	Member        string  `json:"member"`
	Worker        string  `json:"worker"`
	Log           string  `json:"log"`
	AckWait       float64 `json:"ack_wait"`
	MaxAckPending int     `json:"max_ack_pending"`
	Work          float64 `json:"work"`
	Confirmed     bool    `json:"confirmed"`
	Again         float64 `json:"again"`
}

func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second))
}

// member is one instance of a member.
type member struct {
	task    task
	log     *worklog
	js      jetstream.JetStream
	running sync.WaitGroup // handlers
}

func work(argument string) error {
	var task task
	if err := json.Unmarshal([]byte(argument), &task); err != nil {
		return err
	}
	log, err := openWorklog(task.Log, task.Worker)
	if err != nil {
		return err
	}
	connection, err := connect(task.URL)
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetStream(connection)
	if err != nil {
		return err
	}
	over, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	each := &member{task: task, log: log, js: js}
	for over.Err() == nil {
		each.takePart(over)
	}
	each.running.Wait()
	return nil
}

// takePart stays until it is over, or the membership ends; programs then join again.
func (m *member) takePart(over context.Context) {
	config := jetstream.ConsumerConfig{
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       seconds(m.task.AckWait),
		MaxAckPending: m.task.MaxAckPending,
	}
	join := pcgroups.StaticConsume
	if m.task.Kind == "elastic" {
		join = pcgroups.ElasticConsume
	}
	membership, err := join(
		context.Background(), m.js, m.task.Stream, m.task.Group, m.task.Member, m.handle, config)
	if err != nil {
		m.log.note("refused", err.Error())
		time.Sleep(seconds(m.task.Again))
		return
	}
	m.log.note("joined")
	select {
	case err = <-membership.Done():
	case <-over.Done():
		membership.Stop()
		err = <-membership.Done()
	}
	if err != nil {
		m.log.note("ended", err.Error())
		return
	}
	m.log.note("left")
}

func (m *member) handle(message jetstream.Msg) {
	m.running.Add(1)
	defer m.running.Done()
	metadata, err := message.Metadata()
	if err != nil {
		m.log.note("trouble", err.Error())
		return
	}
	about := m.log.begun(message.Data(), metadata.Sequence.Stream)
	time.Sleep(seconds(m.task.Work))
	m.log.note("done", about...)
	if !m.task.Confirmed {
		if err := message.Ack(); err != nil {
			m.log.note("unacked", append(about, err.Error())...)
		}
		return
	}
	// It is delivered again, if it was not acknowledged.
	wait, cancel := context.WithTimeout(context.Background(), seconds(m.task.AckWait))
	defer cancel()
	if err := message.DoubleAck(wait); err != nil {
		m.log.note("unacked", append(about, err.Error())...)
		return
	}
	m.log.note("acked", about...)
}
