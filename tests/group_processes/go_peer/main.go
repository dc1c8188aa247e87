// A stranger for the tests: members of consumer groups, and the verbs, of the Go implementation.
// It is its public API and nothing else.
//
//	go_peer worker '<task as JSON>'   takes part as a member and appends to a log what it handled
//	go_peer verbs <urls>              answers calls on standard input, one JSON line each
//	go_peer version                   prints the versions of the modules it was built of
package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		printVersions()
		return
	}
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: go_peer worker|verbs <argument>, or go_peer version"))
	}
	var err error
	switch os.Args[1] {
	case "worker":
		err = work(os.Args[2])
	case "verbs":
		err = serveVerbs(os.Args[2], os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("unknown command %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func printVersions() {
	info, _ := debug.ReadBuildInfo()
	fmt.Println("go", info.GoVersion)
	for _, module := range info.Deps {
		fmt.Println(module.Path, module.Version)
	}
}

// connect keeps trying until a server is there, and connects again as often as it must.
func connect(urls string) (*nats.Conn, error) {
	return nats.Connect(
		strings.ReplaceAll(urls, " ", ""),
		nats.PingInterval(500*time.Millisecond),
		nats.ReconnectWait(50*time.Millisecond),
		nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.Timeout(time.Second),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.IgnoreDiscoveredServers(), // they are reached through a line that may be cut
	)
}

func jetStream(connection *nats.Conn) (jetstream.JetStream, error) {
	return jetstream.New(connection, jetstream.WithDefaultTimeout(2*time.Second))
}
