// Package kafkago lets segmentio/kafka-go tell its stories to the broker of HEADRACE_BOOTSTRAP. It matters because it
// still speaks old versions of the protocol: Metadata 1, Fetch 10, the first JoinGroup.
package kafkago

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"

	"headrace/clients/telling"
)

func client(s *telling.Stage) *kafka.Client {
	s.Helper()
	return &kafka.Client{Addr: kafka.TCP(telling.Bootstrap(s.T)), Timeout: 20 * time.Second}
}

// topic makes a topic with settings given as name, value, name, value.
func topic(ctx context.Context, s *telling.Stage, partitions int, settings ...string) string {
	s.Helper()
	name := telling.Unique("topic")
	config := kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}
	for at := 0; at < len(settings); at += 2 {
		entry := kafka.ConfigEntry{ConfigName: settings[at], ConfigValue: settings[at+1]}
		config.ConfigEntries = append(config.ConfigEntries, entry)
	}
	answer, err := client(s).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	s.Must(err)
	s.Must(answer.Errors[name])
	return name
}

// writer is a producer that waits for all acknowledgements unless told otherwise.
func writer(s *telling.Stage, topic string, change func(*kafka.Writer)) *kafka.Writer {
	s.Helper()
	made := &kafka.Writer{
		Addr:         kafka.TCP(telling.Bootstrap(s.T)),
		Topic:        topic,
		BatchTimeout: 5 * time.Millisecond,
		RequiredAcks: kafka.RequireAll,
		Balancer:     &kafka.Hash{},
	}
	if change != nil {
		change(made)
	}
	s.Cleanup(func() { _ = made.Close() })
	return made
}

func messages(values ...string) []kafka.Message {
	made := make([]kafka.Message, len(values))
	for at, value := range values {
		made[at].Value = []byte(value)
	}
	return made
}

func produce(ctx context.Context, s *telling.Stage, topic string, values ...string) {
	s.Helper()
	s.Must(writer(s, topic, nil).WriteMessages(ctx, messages(values...)...))
}

// reader reads one partition, without a group.
func reader(s *telling.Stage, topic string, partition int) *kafka.Reader {
	s.Helper()
	made := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{telling.Bootstrap(s.T)}, Topic: topic, Partition: partition, MaxWait: 100 * time.Millisecond, MaxBytes: 5e6,
	})
	s.Cleanup(func() { _ = made.Close() })
	return made
}

func read(ctx context.Context, s *telling.Stage, r *kafka.Reader, count int) []kafka.Message {
	s.Helper()
	var got []kafka.Message
	for len(got) < count {
		message, err := r.FetchMessage(ctx)
		if err != nil {
			s.Fail("%d of %d messages read: %v", len(got), count, err)
		}
		got = append(got, message)
	}
	return got
}

func values(got []kafka.Message) []string {
	texts := make([]string, len(got))
	for at, message := range got {
		texts[at] = string(message.Value)
	}
	return texts
}

// member joins a group and returns its generations as they come.
func member(ctx context.Context, s *telling.Stage, group, topic string, balancer kafka.GroupBalancer) <-chan map[string][]kafka.PartitionAssignment {
	s.Helper()
	joined, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: group, Brokers: []string{telling.Bootstrap(s.T)}, Topics: []string{topic},
		HeartbeatInterval: 200 * time.Millisecond, SessionTimeout: 6 * time.Second, RebalanceTimeout: 6 * time.Second,
		GroupBalancers: []kafka.GroupBalancer{balancer}, WatchPartitionChanges: true, PartitionWatchInterval: 200 * time.Millisecond,
		JoinGroupBackoff: 100 * time.Millisecond,
	})
	s.Must(err)
	shares := make(chan map[string][]kafka.PartitionAssignment, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			generation, err := joined.Next(ctx)
			if errors.Is(err, kafka.ErrGroupClosed) || ctx.Err() != nil {
				return
			}
			// Any other error is a join that failed because the group was rebalancing; the client tries again.
			if err == nil {
				shares <- generation.Assignments
			}
		}
	}()
	s.Cleanup(func() {
		_ = joined.Close()
		<-ended
	})
	return shares
}

// share waits for a generation in which this member has the wanted number of partitions.
func share(s *telling.Stage, shares <-chan map[string][]kafka.PartitionAssignment, topic string, wanted int) {
	s.Helper()
	giveUp := time.After(30 * time.Second)
	for {
		select {
		case assigned := <-shares:
			if len(assigned[topic]) == wanted {
				return
			}
		case <-giveUp:
			s.Fail("no generation with %d partitions came", wanted)
		}
	}
}
