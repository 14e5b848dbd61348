package kafkago

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"headrace/clients/telling"
)

func TestMessages(t *testing.T) {
	telling.Story(t, "round-trip", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		pairs := []kafka.Message{
			{Key: []byte("key"), Value: []byte("value")}, {Value: []byte("no key")}, {Key: []byte("no value")},
			{Key: []byte("schlüssel"), Value: []byte("värde — 値 🌊")}, {Key: []byte{0, 255}, Value: []byte{255, 0}},
		}
		s.Must(writer(s, name, nil).WriteMessages(ctx, pairs...))
		for at, message := range read(ctx, s, reader(s, name, 0), len(pairs)) {
			s.Same([2]string{string(pairs[at].Key), string(pairs[at].Value)}, [2]string{string(message.Key), string(message.Value)})
		}
	})
	telling.Story(t, "compression", func(ctx context.Context, s *telling.Stage) {
		for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
			name := topic(ctx, s, 1)
			w := writer(s, name, func(w *kafka.Writer) { w.Compression = codec })
			s.Must(w.WriteMessages(ctx, messages(telling.Numbers(100)...)...))
			s.Same(telling.Numbers(100), values(read(ctx, s, reader(s, name, 0), 100)))
		}
	})
	telling.Story(t, "headers", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		headers := []kafka.Header{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("2")}, {Key: "a", Value: []byte("3")}}
		s.Must(writer(s, name, nil).WriteMessages(ctx, kafka.Message{Value: []byte("v"), Headers: headers}))
		s.Same(headers, read(ctx, s, reader(s, name, 0), 1)[0].Headers)
	})
	telling.Story(t, "timestamps", func(ctx context.Context, s *telling.Stage) {
		name, hourAgo := topic(ctx, s, 1), time.Now().Add(-time.Hour)
		s.Must(writer(s, name, nil).WriteMessages(ctx, kafka.Message{Value: []byte("v"), Time: hourAgo}))
		s.Same(hourAgo.UnixMilli(), read(ctx, s, reader(s, name, 0), 1)[0].Time.UnixMilli())
	})
	telling.Story(t, "log-append-time", func(ctx context.Context, s *telling.Stage) {
		name, before := topic(ctx, s, 1, "message.timestamp.type", "LogAppendTime"), time.Now().UnixMilli()
		old := kafka.Message{Value: []byte("v"), Time: time.Now().Add(-time.Hour)}
		s.Must(writer(s, name, nil).WriteMessages(ctx, old))
		offsets, err := client(s).ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{name: {kafka.TimeOffsetOf(0, time.UnixMilli(before))}},
		})
		s.Must(err)
		s.Same(1, len(offsets.Topics[name][0].Offsets))
	})
	telling.Story(t, "large-message", func(ctx context.Context, s *telling.Stage) {
		name, value := topic(ctx, s, 1), make([]byte, 900_000)
		_, _ = rand.Read(value)
		s.Must(writer(s, name, nil).WriteMessages(ctx, kafka.Message{Value: value}))
		s.Same(true, bytes.Equal(value, read(ctx, s, reader(s, name, 0), 1)[0].Value))
	})
	telling.Story(t, "oversize", func(ctx context.Context, s *telling.Stage) {
		name, value := topic(ctx, s, 1, "max.message.bytes", "1000"), make([]byte, 5000)
		err := writer(s, name, nil).WriteMessages(ctx, kafka.Message{Value: value})
		var refused kafka.WriteErrors
		s.Same(true, errors.As(err, &refused))
		s.Same(true, errors.Is(refused[0], kafka.MessageSizeTooLarge))
	})
	telling.Story(t, "acks", func(ctx context.Context, s *telling.Stage) {
		for _, acks := range []kafka.RequiredAcks{kafka.RequireNone, kafka.RequireOne, kafka.RequireAll} {
			name := topic(ctx, s, 1)
			w := writer(s, name, func(w *kafka.Writer) { w.RequiredAcks = acks })
			s.Must(w.WriteMessages(ctx, messages(telling.Numbers(20)...)...))
			s.Same(telling.Numbers(20), values(read(ctx, s, reader(s, name, 0), 20)))
		}
	})
	telling.Story(t, "key-order", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 4)
		var sent []kafka.Message
		for number := range 100 {
			sent = append(sent, kafka.Message{Key: []byte("key"), Value: fmt.Append(nil, number)})
		}
		s.Must(writer(s, name, nil).WriteMessages(ctx, sent...))
		home := (&kafka.Hash{}).Balance(sent[0], 0, 1, 2, 3)
		s.Same(telling.Numbers(100), values(read(ctx, s, reader(s, name, home), 100)))
	})
	telling.Story(t, "partitioning", func(ctx context.Context, s *telling.Stage) {
		name, third := topic(ctx, s, 3), kafka.BalancerFunc(func(kafka.Message, ...int) int { return 2 })
		w := writer(s, name, func(w *kafka.Writer) { w.Balancer = third })
		s.Must(w.WriteMessages(ctx, messages("to two")...))
		s.Same([]string{"to two"}, values(read(ctx, s, reader(s, name, 2), 1)))
	})
	telling.Story(t, "many-messages", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		w := writer(s, name, func(w *kafka.Writer) { w.BatchSize = 1000 })
		s.Must(w.WriteMessages(ctx, messages(telling.Numbers(20_000)...)...))
		s.Same(telling.Numbers(20_000), values(read(ctx, s, reader(s, name, 0), 20_000)))
	})
}

func TestReading(t *testing.T) {
	telling.Story(t, "seek", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		produce(ctx, s, name, telling.Numbers(10)...)
		r := reader(s, name, 0)
		s.Must(r.SetOffset(7))
		s.Same([]string{"7", "8"}, values(read(ctx, s, r, 2)))
		s.Must(r.SetOffset(kafka.FirstOffset))
		s.Same([]string{"0"}, values(read(ctx, s, r, 1)))
		s.Must(r.SetOffset(kafka.LastOffset))
		produce(ctx, s, name, "new")
		s.Must(r.SetOffset(10))
		s.Same([]string{"new"}, values(read(ctx, s, r, 1)))
	})
	telling.Story(t, "seek-by-time", func(ctx context.Context, s *telling.Stage) {
		name, start := topic(ctx, s, 1), time.Now().Add(-time.Hour)
		w := writer(s, name, nil)
		for number := range 10 {
			stamp := start.Add(time.Duration(number) * time.Second)
			s.Must(w.WriteMessages(ctx, kafka.Message{Value: fmt.Append(nil, number), Time: stamp}))
		}
		r := reader(s, name, 0)
		s.Must(r.SetOffsetAt(ctx, start.Add(5500*time.Millisecond)))
		s.Same([]string{"6"}, values(read(ctx, s, r, 1)))
	})
	telling.Story(t, "watermarks", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		produce(ctx, s, name, telling.Numbers(3)...)
		leader, err := kafka.DialLeader(ctx, "tcp", telling.Bootstrap(s.T), name, 0)
		s.Must(err)
		defer leader.Close()
		first, last, err := leader.ReadOffsets()
		s.Must(err)
		s.Same([]int64{0, 3}, []int64{first, last})
	})
	telling.Story(t, "commit", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 1), telling.Unique("group")
		produce(ctx, s, name, telling.Numbers(10)...)
		join := func() *kafka.Reader {
			return kafka.NewReader(kafka.ReaderConfig{
				Brokers: []string{telling.Bootstrap(s.T)}, GroupID: group, GroupTopics: []string{name},
				MaxWait: 100 * time.Millisecond, HeartbeatInterval: 200 * time.Millisecond, StartOffset: kafka.FirstOffset,
			})
		}
		first := join()
		s.Must(first.CommitMessages(ctx, read(ctx, s, first, 4)...))
		s.Must(first.Close())
		second := join()
		defer second.Close()
		s.Same([]string{"4"}, values(read(ctx, s, second, 1)))
	})
}

func TestDroppedRecords(t *testing.T) {
	telling.Story(t, "dropped-records", func(ctx context.Context, s *telling.Stage) {
		const dropped = 40
		deduplicated := topic(ctx, s, 1, "headrace.dedup.window.ms", "600000")
		compacted := topic(ctx, s, 1, "cleanup.policy", "compact", "segment.bytes", "100", "min.cleanable.dirty.ratio", "0")
		for number := range dropped {
			send(ctx, s, deduplicated, scheduled("", "same", "headrace.id", "same"))
			send(ctx, s, compacted, scheduled("k", fmt.Sprint(number)))
		}
		s.Until("it is compacted", func() bool {
			r := reader(s, compacted, 0)
			defer r.Close()
			return readOwn(ctx, s, r, 1)[0].Offset == dropped-2
		})
		for name, kept := range map[string][]string{deduplicated: {"same"}, compacted: {"38", "39"}} {
			r := reader(s, name, 0)
			s.Same(kept, values(readOwn(ctx, s, r, len(kept))))
			send(ctx, s, name, scheduled("another", "after"))
			s.Same([]string{"after"}, values(readOwn(ctx, s, r, 1)))
			s.Same(append(kept, "after"), readByGroup(ctx, s, name, len(kept)+1))
		}
	})
}
