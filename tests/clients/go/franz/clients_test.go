// Package franz lets franz-go, with its admin package kadm, tell its stories to the broker of HEADRACE_BOOTSTRAP.
package franz

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/clients/telling"
)

// client is a franz-go client with short timings, closed when the story ends.
func client(s *telling.Stage, options ...kgo.Opt) *kgo.Client {
	s.Helper()
	defaults := []kgo.Opt{
		kgo.SeedBrokers(telling.Bootstrap(s.T)),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(500 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	made, err := kgo.NewClient(append(defaults, options...)...)
	s.Must(err)
	s.Cleanup(made.CloseAllowingRebalance)
	return made
}

func admin(s *telling.Stage) *kadm.Client {
	s.Helper()
	return kadm.NewClient(client(s))
}

// topic makes a topic with settings given as name, value, name, value.
func topic(ctx context.Context, s *telling.Stage, partitions int32, settings ...string) string {
	s.Helper()
	return named(ctx, s, telling.Unique("topic"), partitions, settings...)
}

func named(ctx context.Context, s *telling.Stage, name string, partitions int32, settings ...string) string {
	s.Helper()
	config := map[string]*string{}
	for at := 0; at < len(settings); at += 2 {
		config[settings[at]] = kadm.StringPtr(settings[at+1])
	}
	_, err := admin(s).CreateTopic(ctx, partitions, 1, config, name)
	s.Must(err)
	return name
}

// produce sends the values to one partition, and returns the records with their offsets.
func produce(ctx context.Context, s *telling.Stage, producer *kgo.Client, topic string, partition int32, values ...string) []*kgo.Record {
	s.Helper()
	records := make([]*kgo.Record, len(values))
	for at, value := range values {
		records[at] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	}
	s.Must(producer.ProduceSync(ctx, records...).FirstErr())
	return records
}

// at consumes partition 0 of a topic from an offset.
func at(topic string, offset kgo.Offset) kgo.Opt {
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offset}})
}

// read returns the next count records.
func read(ctx context.Context, s *telling.Stage, consumer *kgo.Client, count int) []*kgo.Record {
	s.Helper()
	var records []*kgo.Record
	for len(records) < count {
		fetches := consumer.PollRecords(ctx, count-len(records))
		if err := fetches.Err(); err != nil {
			s.Fail("%d of %d records read: %v", len(records), count, err)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// silent says whether nothing comes for a while.
func silent(ctx context.Context, consumer *kgo.Client) bool {
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	return consumer.PollFetches(short).NumRecords() == 0
}

func values(records []*kgo.Record) []string {
	texts := make([]string, len(records))
	for at, record := range records {
		texts[at] = string(record.Value)
	}
	return texts
}

// member is a group member that knows what it holds.
type member struct {
	*kgo.Client
	mutex   sync.Mutex
	held    map[string]bool
	revoked int
}

func (m *member) change(partitions map[string][]int32, holds bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			if holds {
				m.held[fmt.Sprint(topic, "-", number)] = true
			} else {
				delete(m.held, fmt.Sprint(topic, "-", number))
				m.revoked++
			}
		}
	}
}

func (m *member) share() map[string]bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	copied := map[string]bool{}
	for place := range m.held {
		copied[place] = true
	}
	return copied
}

func join(s *telling.Stage, group string, options ...kgo.Opt) *member {
	s.Helper()
	m := &member{held: map[string]bool{}}
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.change(lost, false) }
	defaults := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) { m.change(got, true) }),
		kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsLost(gone),
	}
	m.Client = client(s, append(defaults, options...)...)
	return m
}

// settle waits until every partition has exactly one holder and nobody has two more than anybody else.
func settle(s *telling.Stage, partitions int, members ...*member) []map[string]bool {
	s.Helper()
	var shares []map[string]bool
	s.Until("the group shares out its partitions", func() bool {
		shares = nil
		all, sum, most, least := map[string]bool{}, 0, 0, partitions
		for _, m := range members {
			share := m.share()
			shares = append(shares, share)
			for place := range share {
				all[place] = true
			}
			sum += len(share)
			most = max(most, len(share))
			least = min(least, len(share))
		}
		return sum == partitions && len(all) == partitions && most-least <= 1
	})
	return shares
}
