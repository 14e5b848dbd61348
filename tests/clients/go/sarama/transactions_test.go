package sarama

import (
	"context"
	"testing"

	"github.com/IBM/sarama"

	"headrace/clients/telling"
)

func idempotent(c *sarama.Config) {
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1
}

func transactional(id string) func(*sarama.Config) {
	return func(c *sarama.Config) {
		idempotent(c)
		c.Producer.Transaction.ID = id
	}
}

func onlyCommitted(c *sarama.Config) {
	c.Consumer.IsolationLevel = sarama.ReadCommitted
}

func TestTransactions(t *testing.T) {
	telling.Story(t, "transactions", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		p := producer(s, transactional(telling.Unique("id")))
		for _, round := range []struct {
			value  string
			commit bool
		}{{"first", true}, {"never", false}, {"second", true}} {
			s.Must(p.BeginTxn())
			s.Must(p.SendMessages(messages(name, round.value, round.value)))
			if round.commit {
				s.Must(p.CommitTxn())
			} else {
				s.Must(p.AbortTxn())
			}
		}
		committed := partition(s, name, 0, sarama.OffsetOldest, onlyCommitted)
		s.Same([]string{"first", "first", "second", "second"}, values(read(ctx, s, committed, 4)))
		s.Same([]string{"first", "first", "never", "never", "second", "second"}, values(all(ctx, s, name, 6)))
	})
	telling.Story(t, "transactional-offsets", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 1), telling.Unique("worker")
		produce(s, name, telling.Numbers(10)...)
		p := producer(s, transactional(telling.Unique("id")))
		for offset, commit := range []bool{true, false} {
			s.Must(p.BeginTxn())
			s.Must(p.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{
				name: {{Partition: 0, Offset: int64(5 + offset), LeaderEpoch: -1}},
			}, group))
			if commit {
				s.Must(p.CommitTxn())
				s.Until("the offset is committed", func() bool { return committed(s, group, name) == 5 })
			} else {
				s.Must(p.AbortTxn())
			}
		}
		s.Same(int64(5), committed(s, group, name))
	})
	telling.Story(t, "fencing", func(ctx context.Context, s *telling.Stage) {
		name, id := topic(s, 1), telling.Unique("id")
		first := producer(s, transactional(id))
		s.Must(first.BeginTxn())
		s.Must(first.SendMessages(messages(name, "fenced")))
		second := producer(s, transactional(id))
		s.Must(second.BeginTxn())
		s.Must(second.SendMessages(messages(name, "kept")))
		s.Must(second.CommitTxn())
		s.Same(true, first.CommitTxn() != nil)
		s.Same([]string{"kept"}, values(read(ctx, s, partition(s, name, 0, sarama.OffsetOldest, onlyCommitted), 1)))
	})
}
