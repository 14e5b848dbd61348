package sarama

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/IBM/sarama"

	"headrace/clients/telling"
)

// scheduled is a message with headers given as name, value, name, value.
func scheduled(topic string, number int32, key, value string, headers ...string) *sarama.ProducerMessage {
	message := &sarama.ProducerMessage{Topic: topic, Partition: number, Value: sarama.StringEncoder(value)}
	if key != "" {
		message.Key = sarama.StringEncoder(key)
	}
	for at := 0; at < len(headers); at += 2 {
		message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(headers[at]), Value: []byte(headers[at+1])})
	}
	return message
}

// chosen is a producer that sends messages to the partitions that they name.
func chosen(s *telling.Stage, changes ...func(*sarama.Config)) sarama.SyncProducer {
	s.Helper()
	return producer(s, func(c *sarama.Config) {
		c.Producer.Partitioner = sarama.NewManualPartitioner
		for _, change := range changes {
			change(c)
		}
	})
}

// send returns the offset that the producer is told, which is the id of a delayed record.
func send(s *telling.Stage, p sarama.SyncProducer, message *sarama.ProducerMessage) int64 {
	s.Helper()
	_, offset, err := p.SendMessage(message)
	s.Must(err)
	return offset
}

func refuses(s *telling.Stage, p sarama.SyncProducer, topic string, headers ...string) {
	s.Helper()
	_, _, err := p.SendMessage(scheduled(topic, 0, "", "refused", headers...))
	if !errors.Is(err, sarama.ErrInvalidRecord) {
		s.Fail("%v was not refused: %v", headers, err)
	}
}

func headerOf(message *sarama.ConsumerMessage) func(string) string {
	return func(name string) string {
		for _, header := range message.Headers {
			if string(header.Key) == name {
				return string(header.Value)
			}
		}
		return ""
	}
}

func endOf(s *telling.Stage, topic string) int64 {
	s.Helper()
	end, err := client(s).GetOffset(topic, 0, sarama.OffsetNewest)
	s.Must(err)
	return end
}

// readByGroup lets a member read so many messages, and then the group has committed the end.
func readByGroup(s *telling.Stage, topic string, count int) {
	s.Helper()
	group := telling.Unique("group")
	joined := join(s, group, nil, topic)
	s.Until("the group has read all", func() bool {
		_, _, seen := joined.share()
		return seen == count
	})
	joined.leave()
	s.Same(endOf(s, topic), committed(s, group, topic))
}

func TestDelayed(t *testing.T) {
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP} {
		telling.Story(t, "delayed", func(ctx context.Context, s *telling.Stage) {
			name := topic(s, 1, "headrace.delay.enable", "true")
			p := chosen(s, idempotent, func(c *sarama.Config) { c.Producer.Compression = codec })
			began := telling.NowMs()
			send(s, p, scheduled(name, 0, "", "far", "headrace.delay-ms", telling.Hour))
			soon := send(s, p, scheduled(name, 0, "key", "soon", "headrace.delay-ms", "700", "colour", "red"))
			ended := telling.NowMs()
			moment := ended + 900
			dated := send(s, p, scheduled(name, 0, "", "dated", "headrace.deliver-at", fmt.Sprint(moment)))
			send(s, p, scheduled(name, 0, "", "plain", "colour", "blue"))
			reader := partition(s, name, 0, sarama.OffsetOldest, nil)
			var order []string
			for range 3 {
				message := read(ctx, s, reader, 1)[0]
				order = append(order, string(message.Value))
				switch string(message.Value) {
				case "soon":
					s.DueInTime(headerOf(message), soon, began+700, ended+700)
					s.Same("key", string(message.Key))
					s.Same("red", headerOf(message)("colour"))
				case "dated":
					s.DueInTime(headerOf(message), dated, moment, moment)
				default:
					s.Same(1, len(message.Headers))
				}
			}
			s.Same([]string{"dated", "plain", "soon"}, slices.Sorted(slices.Values(order)))
			s.Same(order, values(all(ctx, s, name, 3)))
			readByGroup(s, name, 3)
			send(s, p, scheduled(name, 0, "", "after"))
			s.Same([]string{"after"}, values(read(ctx, s, reader, 1)))
		})
	}
}

func TestDelayedTransactions(t *testing.T) {
	telling.Story(t, "delayed-transactions", func(ctx context.Context, s *telling.Stage) {
		name, plain := topic(s, 2, "headrace.delay.enable", "true"), chosen(s)
		p := chosen(s, transactional(telling.Unique("id")))
		hasty := partition(s, name, 0, sarama.OffsetOldest, nil)
		witnesses := partition(s, name, 1, sarama.OffsetOldest, nil)
		for _, outcome := range []string{"kept", "lost"} {
			s.Must(p.BeginTxn())
			// When a later one of the other partition has come, this one was due too.
			delayed := send(s, p, scheduled(name, 0, "", outcome, "headrace.delay-ms", "300"))
			send(s, p, scheduled(name, 0, "", "inside"))
			send(s, plain, scheduled(name, 1, "", "witness", "headrace.delay-ms", "400"))
			s.Same([]string{"witness"}, values(read(ctx, s, witnesses, 1)))
			s.Same([]string{"inside"}, values(read(ctx, s, hasty, 1)))
			if outcome == "kept" {
				s.Must(p.CommitTxn())
				s.Same([]string{"kept"}, values(read(ctx, s, hasty, 1)))
			} else {
				s.Must(p.AbortTxn())
				refuses(s, plain, name, "headrace.cancel", fmt.Sprint(delayed))
			}
		}
		send(s, plain, scheduled(name, 0, "", "after"))
		careful := partition(s, name, 0, sarama.OffsetOldest, onlyCommitted)
		s.Same([]string{"inside", "kept", "after"}, values(read(ctx, s, careful, 3)))
	})
}

func TestCancelled(t *testing.T) {
	telling.Story(t, "cancelled", func(ctx context.Context, s *telling.Stage) {
		name, p := topic(s, 1, "headrace.delay.enable", "true"), chosen(s)
		var gone []string
		for _, key := range []string{"", "k", "k"} {
			gone = append(gone, fmt.Sprint(send(s, p, scheduled(name, 0, key, "gone", "headrace.delay-ms", telling.Hour))))
		}
		other := send(s, p, scheduled(name, 0, "another", "other", "headrace.delay-ms", telling.Hour))
		send(s, p, scheduled(name, 0, "", "", "headrace.cancel", gone[0]))
		send(s, p, scheduled(name, 0, "", "", "headrace.cancel-key", "k"))
		end := endOf(s, name)
		for _, id := range gone {
			refuses(s, p, name, "headrace.cancel", id)
			refuses(s, p, name, "headrace.move", id, "headrace.delay-ms", "0")
		}
		refuses(s, p, name, "headrace.cancel-key", "k")
		for _, wrong := range telling.RefusedDelays {
			refuses(s, p, name, wrong[0], wrong[1])
		}
		s.Same(end, endOf(s, name))
		send(s, p, scheduled(name, 0, "", "", "headrace.move", fmt.Sprint(other), "headrace.delay-ms", "0"))
		reader := partition(s, name, 0, sarama.OffsetOldest, nil)
		s.Same([]string{"other"}, values(read(ctx, s, reader, 1)))
		readByGroup(s, name, 1)
	})
}

func TestScheduled(t *testing.T) {
	telling.Story(t, "scheduled", func(ctx context.Context, s *telling.Stage) {
		name, p := topic(s, 1, "headrace.delay.enable", "true"), chosen(s)
		wish := scheduled(name, 0, "", "report", "headrace.cron", telling.LeapDays, "headrace.cron-tz", "Europe/Berlin", "colour", "red")
		report := send(s, p, wish)
		reader := partition(s, name, 0, sarama.OffsetOldest, nil)
		for range 2 {
			began := telling.NowMs()
			send(s, p, scheduled(name, 0, "", "", "headrace.move", fmt.Sprint(report), "headrace.delay-ms", "0"))
			message := read(ctx, s, reader, 1)[0]
			s.DueInTime(headerOf(message), report, began, telling.NowMs())
			s.Same("report", string(message.Value))
			s.Same("red", headerOf(message)("colour"))
		}
		once := send(s, p, scheduled(name, 0, "", "once", "headrace.delay-ms", telling.Hour))
		past := []string{"headrace.move", fmt.Sprint(once), "headrace.deliver-at", "2001-02-03T04:05:06Z"}
		send(s, p, scheduled(name, 0, "", "", past...))
		s.Same(fmt.Sprint(once), headerOf(read(ctx, s, reader, 1)[0])("headrace.scheduled.id"))
		refuses(s, p, name, "headrace.cancel", fmt.Sprint(once))
		send(s, p, scheduled(name, 0, "", "", "headrace.cancel", fmt.Sprint(report)))
		refuses(s, p, name, "headrace.cancel", fmt.Sprint(report))
	})
}
