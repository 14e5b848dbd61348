package kafkago

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"headrace/clients/telling"
)

// This client has no idempotent producer and puts no records into a transaction, so it tells the other stories.

// scheduled is a message with headers given as name, value, name, value.
func scheduled(key, value string, headers ...string) kafka.Message {
	message := kafka.Message{Value: []byte(value)}
	if key != "" {
		message.Key = []byte(key)
	}
	for at := 0; at < len(headers); at += 2 {
		message.Headers = append(message.Headers, kafka.Header{Key: headers[at], Value: []byte(headers[at+1])})
	}
	return message
}

// sendAt writes to partition 0 and returns what the broker says: the offset, which is the id of a delayed record.
func sendAt(ctx context.Context, s *telling.Stage, topic string, message kafka.Message) (int64, error) {
	s.Helper()
	record := kafka.Record{Key: kafka.NewBytes(message.Key), Value: kafka.NewBytes(message.Value), Headers: message.Headers}
	answer, err := client(s).Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(record),
	})
	s.Must(err)
	return answer.BaseOffset, answer.Error
}

func send(ctx context.Context, s *telling.Stage, topic string, message kafka.Message) int64 {
	s.Helper()
	offset, err := sendAt(ctx, s, topic, message)
	s.Must(err)
	return offset
}

func refuses(ctx context.Context, s *telling.Stage, topic string, headers ...string) {
	s.Helper()
	_, err := sendAt(ctx, s, topic, scheduled("", "refused", headers...))
	if !errors.Is(err, kafka.InvalidRecord) {
		s.Fail("%v was not refused: %v", headers, err)
	}
}

func headerOf(message kafka.Message) func(string) string {
	return func(name string) string {
		for _, header := range message.Headers {
			if header.Key == name {
				return string(header.Value)
			}
		}
		return ""
	}
}

// readOwn returns the next messages. This client shows the broker's markers like messages, also those of transactions;
// they have this key.
func readOwn(ctx context.Context, s *telling.Stage, r *kafka.Reader, count int) []kafka.Message {
	s.Helper()
	var got []kafka.Message
	for len(got) < count {
		message := read(ctx, s, r, 1)[0]
		if !bytes.Equal(message.Key, []byte{0, 0, 0, 1}) {
			got = append(got, message)
		}
	}
	return got
}

// readByGroup lets a member read and commit so many messages, of which the last is the end of the topic.
func readByGroup(ctx context.Context, s *telling.Stage, topic string, count int) []string {
	s.Helper()
	group := telling.Unique("group")
	joined := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{telling.Bootstrap(s.T)}, GroupID: group, GroupTopics: []string{topic},
		MaxWait: 100 * time.Millisecond, HeartbeatInterval: 200 * time.Millisecond, StartOffset: kafka.FirstOffset,
	})
	defer joined.Close()
	found := readOwn(ctx, s, joined, count)
	s.Must(joined.CommitMessages(ctx, found...))
	s.Same(endOf(ctx, s, topic), committed(ctx, s, group, topic))
	return values(found)
}

func endOf(ctx context.Context, s *telling.Stage, topic string) int64 {
	s.Helper()
	answer, err := client(s).ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}}})
	s.Must(err)
	s.Must(answer.Topics[topic][0].Error)
	return answer.Topics[topic][0].LastOffset
}

func TestDelayed(t *testing.T) {
	telling.Story(t, "delayed", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1, "headrace.delay.enable", "true")
		began := telling.NowMs()
		send(ctx, s, name, scheduled("", "far", "headrace.delay-ms", telling.Hour))
		soon := send(ctx, s, name, scheduled("key", "soon", "headrace.delay-ms", "700", "colour", "red"))
		ended := telling.NowMs()
		moment := ended + 900
		dated := send(ctx, s, name, scheduled("", "dated", "headrace.deliver-at", fmt.Sprint(moment)))
		s.Must(writer(s, name, nil).WriteMessages(ctx, scheduled("", "plain", "colour", "blue")))
		r := reader(s, name, 0)
		var order []string
		for range 3 {
			message := readOwn(ctx, s, r, 1)[0]
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
		s.Same(order, readByGroup(ctx, s, name, 3))
	})
}

func TestCancelled(t *testing.T) {
	telling.Story(t, "cancelled", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1, "headrace.delay.enable", "true")
		var gone []string
		for _, key := range []string{"", "k", "k"} {
			gone = append(gone, fmt.Sprint(send(ctx, s, name, scheduled(key, "gone", "headrace.delay-ms", telling.Hour))))
		}
		other := send(ctx, s, name, scheduled("another", "other", "headrace.delay-ms", telling.Hour))
		send(ctx, s, name, scheduled("", "", "headrace.cancel", gone[0]))
		send(ctx, s, name, scheduled("", "", "headrace.cancel-key", "k"))
		end := endOf(ctx, s, name)
		for _, id := range gone {
			refuses(ctx, s, name, "headrace.cancel", id)
			refuses(ctx, s, name, "headrace.move", id, "headrace.delay-ms", "0")
		}
		refuses(ctx, s, name, "headrace.cancel-key", "k")
		for _, wrong := range telling.RefusedDelays {
			refuses(ctx, s, name, wrong[0], wrong[1])
		}
		s.Same(end, endOf(ctx, s, name))
		send(ctx, s, name, scheduled("", "", "headrace.move", fmt.Sprint(other), "headrace.delay-ms", "0"))
		s.Same([]string{"other"}, values(readOwn(ctx, s, reader(s, name, 0), 1)))
		s.Same([]string{"other"}, readByGroup(ctx, s, name, 1))
	})
}

func TestScheduled(t *testing.T) {
	telling.Story(t, "scheduled", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1, "headrace.delay.enable", "true")
		wish := scheduled("", "report", "headrace.cron", telling.LeapDays, "headrace.cron-tz", "Europe/Berlin", "colour", "red")
		report := send(ctx, s, name, wish)
		r := reader(s, name, 0)
		for range 2 {
			began := telling.NowMs()
			send(ctx, s, name, scheduled("", "", "headrace.move", fmt.Sprint(report), "headrace.delay-ms", "0"))
			message := readOwn(ctx, s, r, 1)[0]
			s.DueInTime(headerOf(message), report, began, telling.NowMs())
			s.Same("report", string(message.Value))
			s.Same("red", headerOf(message)("colour"))
		}
		once := send(ctx, s, name, scheduled("", "once", "headrace.delay-ms", telling.Hour))
		send(ctx, s, name, scheduled("", "", "headrace.move", fmt.Sprint(once), "headrace.deliver-at", "2001-02-03T04:05:06Z"))
		s.Same(fmt.Sprint(once), headerOf(readOwn(ctx, s, r, 1)[0])("headrace.scheduled.id"))
		refuses(ctx, s, name, "headrace.cancel", fmt.Sprint(once))
		send(ctx, s, name, scheduled("", "", "headrace.cancel", fmt.Sprint(report)))
		refuses(ctx, s, name, "headrace.cancel", fmt.Sprint(report))
	})
}
