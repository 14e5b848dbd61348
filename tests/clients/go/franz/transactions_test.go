package franz

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/clients/telling"
)

var committed = kgo.FetchIsolationLevel(kgo.ReadCommitted())

// transaction sends the values to partition 0 in one transaction.
func transaction(ctx context.Context, s *telling.Stage, producer *kgo.Client, topic string, end kgo.TransactionEndTry, values ...string) {
	s.Helper()
	s.Must(producer.BeginTransaction())
	produce(ctx, s, producer, topic, 0, values...)
	s.Must(producer.EndTransaction(ctx, end))
}

func TestTransactions(t *testing.T) {
	telling.Story(t, "transactions", func(ctx context.Context, s *telling.Stage) {
		name, producer := topic(ctx, s, 1), client(s, kgo.TransactionalID(telling.Unique("id")))
		transaction(ctx, s, producer, name, kgo.TryCommit, "0-0", "0-1")
		transaction(ctx, s, producer, name, kgo.TryAbort, "1-0", "1-1")
		transaction(ctx, s, producer, name, kgo.TryCommit, "2-0", "2-1")
		careful := client(s, at(name, kgo.NewOffset().AtStart()), committed)
		s.Same([]string{"0-0", "0-1", "2-0", "2-1"}, values(read(ctx, s, careful, 4)))
		hasty := client(s, at(name, kgo.NewOffset().AtStart()))
		s.Same([]string{"0-0", "0-1", "1-0", "1-1", "2-0", "2-1"}, values(read(ctx, s, hasty, 6)))
	})
	telling.Story(t, "transactions", func(ctx context.Context, s *telling.Stage) {
		name, producer := topic(ctx, s, 1), client(s, kgo.TransactionalID(telling.Unique("id")))
		s.Must(producer.BeginTransaction())
		produce(ctx, s, producer, name, 0, "inside")
		produce(ctx, s, client(s), name, 0, "behind")
		reader := client(s, at(name, kgo.NewOffset().AtStart()), committed)
		s.Same(true, silent(ctx, reader))
		s.Must(producer.EndTransaction(ctx, kgo.TryCommit))
		s.Same([]string{"inside", "behind"}, values(read(ctx, s, reader, 2)))
	})
	telling.Story(t, "fencing", func(ctx context.Context, s *telling.Stage) {
		name, id := topic(ctx, s, 1), telling.Unique("id")
		first := client(s, kgo.TransactionalID(id))
		s.Must(first.BeginTransaction())
		produce(ctx, s, first, name, 0, "lost")
		second := client(s, kgo.TransactionalID(id))
		transaction(ctx, s, second, name, kgo.TryCommit, "kept")
		err := first.EndTransaction(ctx, kgo.TryCommit)
		s.Same(true, errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch))
		reader := client(s, at(name, kgo.NewOffset().AtStart()), committed)
		s.Same([]string{"kept"}, values(read(ctx, s, reader, 1)))
	})
}

// worker reads a topic in a group, in the classic or in the new protocol, and writes in transactions.
func worker(s *telling.Stage, group, source string, options ...kgo.Opt) *kgo.GroupTransactSession {
	s.Helper()
	defaults := []kgo.Opt{
		kgo.SeedBrokers(telling.Bootstrap(s.T)),
		kgo.TransactionalID(telling.Unique("id")),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		committed,
	}
	session, err := kgo.NewGroupTransactSession(append(defaults, options...)...)
	s.Must(err)
	s.Cleanup(session.CloseAllowingRebalance)
	return session
}

func TestTransactionalOffsets(t *testing.T) {
	protocols := [][]kgo.Opt{nil, {kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}}
	for _, protocol := range protocols {
		telling.Story(t, "transactional-offsets", func(ctx context.Context, s *telling.Stage) {
			source, target, group := topic(ctx, s, 1), topic(ctx, s, 1), telling.Unique("worker")
			produce(ctx, s, client(s), source, 0, telling.Numbers(5)...)
			for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
				session := worker(s, group, source, protocol...)
				s.Must(session.Begin())
				// A transaction that was aborted left no offset: the next worker starts over.
				for _, record := range read(ctx, s, session.Client(), 5) {
					done := &kgo.Record{Topic: target, Value: append([]byte("done "), record.Value...)}
					s.Must(session.ProduceSync(ctx, done).FirstErr())
				}
				ended, err := session.End(ctx, end)
				s.Must(err)
				s.Same(bool(end), ended)
				session.CloseAllowingRebalance()
			}
			reader := client(s, at(target, kgo.NewOffset().AtStart()), committed)
			s.Same([]string{"done 0", "done 1", "done 2", "done 3", "done 4"}, values(read(ctx, s, reader, 5)))
			s.Until("the offset is committed", func() bool {
				fetched, err := admin(s).FetchOffsets(ctx, group)
				s.Must(err)
				offset, _ := fetched.Lookup(source, 0)
				return offset.At == 5
			})
		})
	}
}

func TestTransactionAdministration(t *testing.T) {
	telling.Story(t, "transactions-admin", func(ctx context.Context, s *telling.Stage) {
		name, id, a := topic(ctx, s, 1), telling.Unique("hangs"), admin(s)
		producer := client(s, kgo.TransactionalID(id))
		s.Must(producer.BeginTransaction())
		produce(ctx, s, producer, name, 0, "lost")
		listed, err := a.ListTransactions(ctx, nil, []string{"Ongoing"})
		s.Must(err)
		s.Same("Ongoing", listed[id].State)
		described, err := a.DescribeTransactions(ctx, id)
		s.Must(err)
		s.Same(true, described[id].Topics.Lookup(name, 0))
		place := kadm.TopicsSet{}
		place.Add(name, 0)
		producers, err := a.DescribeProducers(ctx, place)
		s.Must(err)
		seen := producers.SortedProducers()
		s.Same(1, len(seen))
		s.Same(int64(0), seen[0].CurrentTxnStartOffset)
		ended, err := a.WriteTxnMarkers(ctx, kadm.TxnMarkers{
			ProducerID: seen[0].ProducerID, ProducerEpoch: seen[0].ProducerEpoch, CoordinatorEpoch: seen[0].CoordinatorEpoch, Topics: place,
		})
		s.Must(err)
		for _, marker := range ended.SortedPartitions() {
			s.Must(marker.Err)
		}
		produce(ctx, s, client(s), name, 0, "after")
		reader := client(s, at(name, kgo.NewOffset().AtStart()), committed)
		s.Same([]string{"after"}, values(read(ctx, s, reader, 1)))
	})
}
