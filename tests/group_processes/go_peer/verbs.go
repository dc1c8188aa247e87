package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/pcgroups"
)

const verbTimeout = 10 * time.Second

// A call is [verb, argument, …]; its answer is {"value": …} or {"error": "…"}. Mappings and filters are
// {"mapping": {…}} and {"filter": {…}}, with the fields of the record.
type call []json.RawMessage

type answer struct {
	Value any    `json:"value"`
	Error string `json:"error,omitempty"`
}

type mapping struct {
	Mapping pcgroups.MemberMapping `json:"mapping"`
}

type filter struct {
	Filter pcgroups.PartitioningFilter `json:"filter"`
}

func serveVerbs(urls string, in io.Reader, out io.Writer) error {
	connection, err := connect(urls)
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetStream(connection)
	if err != nil {
		return err
	}
	lines, answers := bufio.NewScanner(in), json.NewEncoder(out)
	for lines.Scan() {
		var asked call
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		value, err := doVerb(js, asked)
		said := answer{Value: value}
		if err != nil {
			said = answer{Error: err.Error()}
		}
		if err := answers.Encode(said); err != nil {
			return err
		}
	}
	return lines.Err()
}

func doVerb(js jetstream.JetStream, asked call) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), verbTimeout)
	defer cancel()
	var verb, stream, group, member string
	if err := asked.read(&verb, &stream); err != nil {
		return nil, err
	}
	switch verb {
	case "list_static_groups":
		return pcgroups.ListStaticConsumerGroups(ctx, js, stream)
	case "list_elastic_groups":
		return pcgroups.ListElasticConsumerGroups(ctx, js, stream)
	}
	if err := asked[1:].read(&stream, &group); err != nil {
		return nil, err
	}
	switch verb {
	case "create_static", "create_elastic":
		return create(ctx, js, verb, stream, group, asked[3:])
	case "add_members", "delete_members", "set_member_mappings", "delete_member_mappings":
		return change(ctx, js, verb, stream, group, asked[3:])
	case "get_static_config":
		return pcgroups.GetStaticConsumerGroupConfig(ctx, js, stream, group)
	case "get_elastic_config":
		return pcgroups.GetElasticConsumerGroupConfig(ctx, js, stream, group)
	case "list_static_active_members":
		return pcgroups.ListStaticActiveMembers(ctx, js, stream, group)
	case "list_elastic_active_members":
		return pcgroups.ListElasticActiveMembers(ctx, js, stream, group)
	case "delete_static":
		return nil, pcgroups.DeleteStatic(ctx, js, stream, group)
	case "delete_elastic":
		return nil, pcgroups.DeleteElastic(ctx, js, stream, group)
	}
	if err := asked[3:].read(&member); err != nil {
		return nil, err
	}
	switch verb {
	case "static_member_step_down":
		return nil, pcgroups.StaticMemberStepDown(ctx, js, stream, group, member)
	case "elastic_member_step_down":
		return nil, pcgroups.ElasticMemberStepDown(ctx, js, stream, group, member)
	}
	return nil, fmt.Errorf("unknown verb %q", verb)
}

func create(
	ctx context.Context, js jetstream.JetStream, verb, stream, group string, rest call,
) (any, error) {
	var partitions uint
	if verb == "create_static" {
		var filters, members []string
		var mappings []mapping
		if err := rest.read(&partitions, &filters, &members, &mappings); err != nil {
			return nil, err
		}
		return pcgroups.CreateStatic(
			ctx, js, stream, group, partitions, filters, members, mapped(mappings))
	}
	var filters []filter
	var messages, bytes int64
	if err := rest.read(&partitions, &filters, &messages, &bytes); err != nil {
		return nil, err
	}
	return pcgroups.CreateElastic(
		ctx, js, stream, group, partitions, partitioned(filters), messages, bytes)
}

func change(
	ctx context.Context, js jetstream.JetStream, verb, stream, group string, rest call,
) (any, error) {
	var members []string
	var mappings []mapping
	switch verb {
	case "set_member_mappings":
		if err := rest.read(&mappings); err != nil {
			return nil, err
		}
		return nil, pcgroups.SetMemberMappings(ctx, js, stream, group, mapped(mappings))
	case "delete_member_mappings":
		return nil, pcgroups.DeleteMemberMappings(ctx, js, stream, group)
	}
	if err := rest.read(&members); err != nil {
		return nil, err
	}
	if verb == "add_members" {
		return pcgroups.AddMembers(ctx, js, stream, group, members)
	}
	return pcgroups.DeleteMembers(ctx, js, stream, group, members)
}

// read takes arguments, as many as there are places for.
func (c call) read(places ...any) error {
	if len(c) < len(places) {
		return fmt.Errorf("%d more arguments are needed", len(places)-len(c))
	}
	for at, place := range places {
		if err := json.Unmarshal(c[at], place); err != nil {
			return err
		}
	}
	return nil
}

func mapped(given []mapping) []pcgroups.MemberMapping {
	var found []pcgroups.MemberMapping
	for _, each := range given {
		found = append(found, each.Mapping)
	}
	return found
}

func partitioned(given []filter) []pcgroups.PartitioningFilter {
	var found []pcgroups.PartitioningFilter
	for _, each := range given {
		found = append(found, each.Filter)
	}
	return found
}
