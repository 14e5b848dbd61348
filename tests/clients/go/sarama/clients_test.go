// Package sarama lets IBM/sarama tell its stories to the broker of HEADRACE_BOOTSTRAP. Programs tell this client which
// version of Kafka they think they talk to, and it chooses its requests by that; here it is the newest that it knows.
package sarama

import (
	"context"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"headrace/clients/telling"
)

func config(change func(*sarama.Config)) *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Producer.Return.Successes = true
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Flush.Frequency = 5 * time.Millisecond
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.MaxWaitTime = 100 * time.Millisecond
	made.Consumer.Group.Session.Timeout = 6 * time.Second
	made.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	made.Metadata.RefreshFrequency = 500 * time.Millisecond
	if change != nil {
		change(made)
	}
	return made
}

func brokers(s *telling.Stage) []string {
	s.Helper()
	return []string{telling.Bootstrap(s.T)}
}

func client(s *telling.Stage) sarama.Client {
	s.Helper()
	made, err := sarama.NewClient(brokers(s), config(nil))
	s.Must(err)
	s.Cleanup(func() { _ = made.Close() })
	return made
}

func admin(s *telling.Stage) sarama.ClusterAdmin {
	s.Helper()
	made, err := sarama.NewClusterAdmin(brokers(s), config(nil))
	s.Must(err)
	s.Cleanup(func() { _ = made.Close() })
	return made
}

// detail is a new topic with settings given as name, value, name, value.
func detail(partitions int32, settings ...string) *sarama.TopicDetail {
	entries := map[string]*string{}
	for at := 0; at < len(settings); at += 2 {
		entries[settings[at]] = &settings[at+1]
	}
	return &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: entries}
}

func topic(s *telling.Stage, partitions int32, settings ...string) string {
	s.Helper()
	name := telling.Unique("topic")
	s.Must(admin(s).CreateTopic(name, detail(partitions, settings...), false))
	return name
}

func producer(s *telling.Stage, change func(*sarama.Config)) sarama.SyncProducer {
	s.Helper()
	made, err := sarama.NewSyncProducer(brokers(s), config(change))
	s.Must(err)
	s.Cleanup(func() { _ = made.Close() })
	return made
}

func messages(topic string, values ...string) []*sarama.ProducerMessage {
	made := make([]*sarama.ProducerMessage, len(values))
	for at, value := range values {
		made[at] = &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
	}
	return made
}

func produce(s *telling.Stage, topic string, values ...string) {
	s.Helper()
	s.Must(producer(s, nil).SendMessages(messages(topic, values...)))
}

// partition is read from an offset on, without a group.
func partition(s *telling.Stage, topic string, number int32, offset int64, change func(*sarama.Config)) sarama.PartitionConsumer {
	s.Helper()
	made, err := sarama.NewConsumer(brokers(s), config(change))
	s.Must(err)
	reader, err := made.ConsumePartition(topic, number, offset)
	s.Must(err)
	s.Cleanup(func() {
		_ = reader.Close()
		_ = made.Close()
	})
	return reader
}

func read(ctx context.Context, s *telling.Stage, from sarama.PartitionConsumer, count int) []*sarama.ConsumerMessage {
	s.Helper()
	var got []*sarama.ConsumerMessage
	for len(got) < count {
		select {
		case message := <-from.Messages():
			got = append(got, message)
		case <-ctx.Done():
			s.Fail("%d of %d messages read", len(got), count)
		}
	}
	return got
}

// all reads the only partition of a topic from its start.
func all(ctx context.Context, s *telling.Stage, topic string, count int) []*sarama.ConsumerMessage {
	s.Helper()
	return read(ctx, s, partition(s, topic, 0, sarama.OffsetOldest, nil), count)
}

func values(got []*sarama.ConsumerMessage) []string {
	texts := make([]string, len(got))
	for at, message := range got {
		texts[at] = string(message.Value)
	}
	return texts
}

// member is one of a group, which marks what it reads.
type member struct {
	lock       sync.Mutex
	claims     map[string][]int32
	generation int32
	seen       map[string]int
	leave      func()
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claims, m.generation = session.Claims(), session.GenerationID()
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.claims = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.lock.Lock()
		m.seen[string(message.Value)]++
		m.lock.Unlock()
		session.MarkMessage(message, "")
	}
	return nil
}

// share is how many partitions the member has, in which generation, and how many messages it has seen.
func (m *member) share() (partitions int, generation int32, seen int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, claimed := range m.claims {
		partitions += len(claimed)
	}
	return partitions, m.generation, len(m.seen)
}

func join(s *telling.Stage, group string, change func(*sarama.Config), topics ...string) *member {
	s.Helper()
	joined, err := sarama.NewConsumerGroup(brokers(s), group, config(change))
	s.Must(err)
	ctx, cancel := context.WithCancel(context.Background())
	made, ended, once := &member{seen: map[string]int{}}, make(chan struct{}), sync.Once{}
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_ = joined.Consume(ctx, topics, made) // what was wrong, such as a rebalance, is tried again
		}
	}()
	made.leave = func() {
		once.Do(func() {
			cancel()
			<-ended
			_ = joined.Close()
		})
	}
	s.Cleanup(made.leave)
	return made
}

// settle waits until the members have these numbers of partitions.
func settle(s *telling.Stage, wanted []int, members ...*member) {
	s.Helper()
	s.Until("every member has its share", func() bool {
		for at, m := range members {
			if partitions, _, _ := m.share(); partitions != wanted[at] {
				return false
			}
		}
		return true
	})
}
