package kafkago

import (
	"context"
	"errors"
	"testing"

	"github.com/segmentio/kafka-go"

	"headrace/clients/telling"
)

// This client cannot put records into a transaction (its batches have no producer id), but it has the requests around
// them: a producer session, offsets in a transaction, and its end.

// session is a producer's; the transaction before it may still be ending, and then this client leaves it to us to ask again.
func session(ctx context.Context, s *telling.Stage, id string) *kafka.ProducerSession {
	s.Helper()
	var answer *kafka.InitProducerIDResponse
	s.Until("a session begins", func() bool {
		var err error
		answer, err = client(s).InitProducerID(ctx, &kafka.InitProducerIDRequest{
			TransactionalID: id, TransactionTimeoutMs: 60_000, ProducerID: -1, ProducerEpoch: -1,
		})
		s.Must(err)
		return !errors.Is(answer.Error, kafka.ConcurrentTransactions)
	})
	s.Must(answer.Error)
	return answer.Producer
}

func addOffsets(ctx context.Context, s *telling.Stage, id string, of *kafka.ProducerSession, group string) {
	s.Helper()
	answer, err := client(s).AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{
		TransactionalID: id, ProducerID: of.ProducerID, ProducerEpoch: of.ProducerEpoch, GroupID: group,
	})
	s.Must(err)
	s.Must(answer.Error)
}

func end(ctx context.Context, s *telling.Stage, id string, of *kafka.ProducerSession, commit bool) error {
	s.Helper()
	answer, err := client(s).EndTxn(ctx, &kafka.EndTxnRequest{
		TransactionalID: id, ProducerID: of.ProducerID, ProducerEpoch: of.ProducerEpoch, Committed: commit,
	})
	s.Must(err)
	return answer.Error
}

func TestTransactions(t *testing.T) {
	telling.Story(t, "transactional-offsets", func(ctx context.Context, s *telling.Stage) {
		name, id, group := topic(ctx, s, 1), telling.Unique("id"), telling.Unique("worker")
		for offset, commit := range []bool{true, false} {
			of := session(ctx, s, id)
			addOffsets(ctx, s, id, of, group)
			answer, err := client(s).TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{
				TransactionalID: id, GroupID: group, ProducerID: of.ProducerID, ProducerEpoch: of.ProducerEpoch, GenerationID: -1,
				Topics: map[string][]kafka.TxnOffsetCommit{name: {{Partition: 0, Offset: int64(5 + offset)}}},
			})
			s.Must(err)
			s.Must(answer.Topics[name][0].Error)
			s.Must(end(ctx, s, id, of, commit))
		}
		session(ctx, s, id)
		s.Until("the offset is committed", func() bool {
			answer, err := client(s).OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{name: {0}}})
			s.Must(err)
			return answer.Topics[name][0].CommittedOffset == 5
		})
	})
	telling.Story(t, "fencing", func(ctx context.Context, s *telling.Stage) {
		id := telling.Unique("id")
		first := session(ctx, s, id)
		addOffsets(ctx, s, id, first, telling.Unique("worker"))
		second := session(ctx, s, id)
		s.Same(first.ProducerID, second.ProducerID)
		s.Same(true, second.ProducerEpoch > first.ProducerEpoch)
		refused := end(ctx, s, id, first, true)
		s.Same(true, errors.Is(refused, kafka.ProducerFenced) || errors.Is(refused, kafka.InvalidProducerEpoch))
	})
}
