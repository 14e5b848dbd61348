package franz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/clients/telling"
)

// scheduled is a record with headers given as name, value, name, value.
func scheduled(topic string, partition int32, key, value string, headers ...string) *kgo.Record {
	record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
	if key != "" {
		record.Key = []byte(key)
	}
	for at := 0; at < len(headers); at += 2 {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: headers[at], Value: []byte(headers[at+1])})
	}
	return record
}

// send returns the offset that the producer is told, which is the id of a delayed record.
func send(ctx context.Context, s *telling.Stage, producer *kgo.Client, record *kgo.Record) int64 {
	s.Helper()
	s.Must(producer.ProduceSync(ctx, record).FirstErr())
	return record.Offset
}

func refuses(ctx context.Context, s *telling.Stage, producer *kgo.Client, topic string, headers ...string) {
	s.Helper()
	err := producer.ProduceSync(ctx, scheduled(topic, 0, "", "refused", headers...)).FirstErr()
	if !errors.Is(err, kerr.InvalidRecord) {
		s.Fail("%v was not refused: %v", headers, err)
	}
}

func headerOf(record *kgo.Record) func(string) string {
	return func(name string) string {
		for _, header := range record.Headers {
			if header.Key == name {
				return string(header.Value)
			}
		}
		return ""
	}
}

func endOf(ctx context.Context, s *telling.Stage, topic string) int64 {
	s.Helper()
	listed, err := admin(s).ListEndOffsets(ctx, topic)
	s.Must(err)
	end, _ := listed.Lookup(topic, 0)
	return end.Offset
}

func committedOffset(ctx context.Context, s *telling.Stage, group, topic string) int64 {
	s.Helper()
	fetched, err := admin(s).FetchOffsets(ctx, group)
	s.Must(err)
	offset, _ := fetched.Lookup(topic, 0)
	return offset.At
}

func TestDelayed(t *testing.T) {
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.SnappyCompression()} {
		telling.Story(t, "delayed", func(ctx context.Context, s *telling.Stage) {
			name, group := topic(ctx, s, 1, "headrace.delay.enable", "true"), telling.Unique("group")
			producer := client(s, kgo.ProducerBatchCompression(codec)) // idempotent, as this client is
			began := telling.NowMs()
			send(ctx, s, producer, scheduled(name, 0, "", "far", "headrace.delay-ms", telling.Hour))
			soon := send(ctx, s, producer, scheduled(name, 0, "key", "soon", "headrace.delay-ms", "700", "colour", "red"))
			ended := telling.NowMs()
			moment := ended + 900
			dated := send(ctx, s, producer, scheduled(name, 0, "", "dated", "headrace.deliver-at", fmt.Sprint(moment)))
			send(ctx, s, producer, scheduled(name, 0, "", "plain", "colour", "blue"))
			member := client(s, kgo.ConsumerGroup(group), kgo.ConsumeTopics(name), kgo.DisableAutoCommit())
			var order []string
			for range 3 {
				record := read(ctx, s, member, 1)[0]
				order = append(order, string(record.Value))
				switch string(record.Value) {
				case "soon":
					s.DueInTime(headerOf(record), soon, began+700, ended+700)
					s.Same("key", string(record.Key))
					s.Same("red", headerOf(record)("colour"))
				case "dated":
					s.DueInTime(headerOf(record), dated, moment, moment)
				default:
					s.Same(1, len(record.Headers))
				}
			}
			s.Same([]string{"dated", "plain", "soon"}, slices.Sorted(slices.Values(order)))
			again := client(s, at(name, kgo.NewOffset().AtStart()))
			s.Same(order, values(read(ctx, s, again, 3)))
			s.Same(true, silent(ctx, again))
			s.Must(member.CommitUncommittedOffsets(ctx))
			s.Same(endOf(ctx, s, name), committedOffset(ctx, s, group, name))
		})
	}
}

func TestDelayedTransactions(t *testing.T) {
	telling.Story(t, "delayed-transactions", func(ctx context.Context, s *telling.Stage) {
		name, plain := topic(ctx, s, 2, "headrace.delay.enable", "true"), client(s)
		producer := client(s, kgo.TransactionalID(telling.Unique("id")))
		hasty := client(s, kgo.ConsumeTopics(name))
		for _, outcome := range []string{"kept", "lost"} {
			s.Must(producer.BeginTransaction())
			// When a later one of the other partition has come, this one was due too.
			delayed := send(ctx, s, producer, scheduled(name, 0, "", outcome, "headrace.delay-ms", "300"))
			send(ctx, s, producer, scheduled(name, 0, "", "inside"))
			send(ctx, s, plain, scheduled(name, 1, "", "witness", "headrace.delay-ms", "400"))
			s.Same([]string{"inside", "witness"}, slices.Sorted(slices.Values(values(read(ctx, s, hasty, 2)))))
			if outcome == "kept" {
				s.Must(producer.EndTransaction(ctx, kgo.TryCommit))
				s.Same([]string{"kept"}, values(read(ctx, s, hasty, 1)))
			} else {
				s.Must(producer.EndTransaction(ctx, kgo.TryAbort))
				refuses(ctx, s, plain, name, "headrace.cancel", fmt.Sprint(delayed))
			}
		}
		careful := client(s, at(name, kgo.NewOffset().AtStart()), committed)
		s.Same([]string{"inside", "kept"}, values(read(ctx, s, careful, 2)))
		s.Same(true, silent(ctx, careful))
	})
}

func TestCancelled(t *testing.T) {
	telling.Story(t, "cancelled", func(ctx context.Context, s *telling.Stage) {
		name, producer := topic(ctx, s, 1, "headrace.delay.enable", "true"), client(s)
		var gone []string
		for _, key := range []string{"", "k", "k"} {
			gone = append(gone, fmt.Sprint(send(ctx, s, producer, scheduled(name, 0, key, "gone", "headrace.delay-ms", telling.Hour))))
		}
		other := send(ctx, s, producer, scheduled(name, 0, "another", "other", "headrace.delay-ms", telling.Hour))
		send(ctx, s, producer, scheduled(name, 0, "", "", "headrace.cancel", gone[0]))
		send(ctx, s, producer, scheduled(name, 0, "", "", "headrace.cancel-key", "k"))
		end := endOf(ctx, s, name)
		for _, id := range gone {
			refuses(ctx, s, producer, name, "headrace.cancel", id)
			refuses(ctx, s, producer, name, "headrace.move", id, "headrace.delay-ms", "0")
		}
		refuses(ctx, s, producer, name, "headrace.cancel-key", "k")
		for _, wrong := range telling.RefusedDelays {
			refuses(ctx, s, producer, name, wrong[0], wrong[1])
		}
		s.Same(end, endOf(ctx, s, name))
		send(ctx, s, producer, scheduled(name, 0, "", "", "headrace.move", fmt.Sprint(other), "headrace.delay-ms", "0"))
		reader := client(s, at(name, kgo.NewOffset().AtStart()))
		s.Same([]string{"other"}, values(read(ctx, s, reader, 1)))
		s.Same(true, silent(ctx, reader))
	})
}

func TestScheduled(t *testing.T) {
	telling.Story(t, "scheduled", func(ctx context.Context, s *telling.Stage) {
		name, producer := topic(ctx, s, 1, "headrace.delay.enable", "true"), client(s)
		wish := scheduled(name, 0, "", "report", "headrace.cron", telling.LeapDays, "headrace.cron-tz", "Europe/Berlin", "colour", "red")
		report := send(ctx, s, producer, wish)
		reader := client(s, at(name, kgo.NewOffset().AtStart()))
		for range 2 {
			began := telling.NowMs()
			send(ctx, s, producer, scheduled(name, 0, "", "", "headrace.move", fmt.Sprint(report), "headrace.delay-ms", "0"))
			record := read(ctx, s, reader, 1)[0]
			s.DueInTime(headerOf(record), report, began, telling.NowMs())
			s.Same("report", string(record.Value))
			s.Same("red", headerOf(record)("colour"))
			s.Same(true, silent(ctx, reader))
		}
		once := send(ctx, s, producer, scheduled(name, 0, "", "once", "headrace.delay-ms", telling.Hour))
		past := []string{"headrace.move", fmt.Sprint(once), "headrace.deliver-at", "2001-02-03T04:05:06Z"}
		send(ctx, s, producer, scheduled(name, 0, "", "", past...))
		s.Same(fmt.Sprint(once), headerOf(read(ctx, s, reader, 1)[0])("headrace.scheduled.id"))
		refuses(ctx, s, producer, name, "headrace.cancel", fmt.Sprint(once))
		send(ctx, s, producer, scheduled(name, 0, "", "", "headrace.cancel", fmt.Sprint(report)))
		refuses(ctx, s, producer, name, "headrace.cancel", fmt.Sprint(report))
	})
}
