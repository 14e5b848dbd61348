package franz

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/clients/telling"
)

func TestRoundTrip(t *testing.T) {
	telling.Story(t, "round-trip", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		all := make([]byte, 256)
		for value := range all {
			all[value] = byte(value)
		}
		pairs := [][2][]byte{
			{[]byte("key"), []byte("value")}, {nil, []byte("no key")}, {[]byte("no value"), nil}, {nil, nil},
			{{}, {}}, {[]byte("schlüssel"), []byte("värde — 値 🌊")}, {all, all},
		}
		producer := client(s)
		for _, pair := range pairs {
			s.Must(producer.ProduceSync(ctx, &kgo.Record{Topic: name, Key: pair[0], Value: pair[1]}).FirstErr())
		}
		for number, record := range read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), len(pairs)) {
			s.Same(pairs[number], [2][]byte{record.Key, record.Value})
		}
	})
}

func TestCompression(t *testing.T) {
	telling.Story(t, "compression", func(ctx context.Context, s *telling.Stage) {
		codecs := []kgo.CompressionCodec{
			kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
		}
		for _, codec := range codecs {
			name := topic(ctx, s, 1)
			sent := telling.Numbers(200)
			for number := range sent {
				sent[number] = strings.Repeat(sent[number], 50)
			}
			produce(ctx, s, client(s, kgo.ProducerBatchCompression(codec)), name, 0, sent...)
			s.Same(sent, values(read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 200)))
		}
	})
}

func TestHeaders(t *testing.T) {
	telling.Story(t, "headers", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		headers := []kgo.RecordHeader{
			{Key: "a", Value: []byte("1")}, {Key: "b", Value: nil}, {Key: "a", Value: []byte("2")}, {Key: "ünï", Value: []byte{0, 255}},
		}
		s.Must(client(s).ProduceSync(ctx, &kgo.Record{Topic: name, Value: []byte("v"), Headers: headers}).FirstErr())
		s.Same(headers, read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 1)[0].Headers)
	})
}

func TestTimestamps(t *testing.T) {
	hourAgo := time.UnixMilli(time.Now().Add(-time.Hour).UnixMilli())
	telling.Story(t, "timestamps", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		s.Must(client(s).ProduceSync(ctx, &kgo.Record{Topic: name, Timestamp: hourAgo}).FirstErr())
		record := read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 1)[0]
		s.Same(hourAgo.UnixMilli(), record.Timestamp.UnixMilli())
		s.Same(int8(0), record.Attrs.TimestampType())
	})
	telling.Story(t, "log-append-time", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1, "message.timestamp.type", "LogAppendTime")
		before := time.Now().UnixMilli()
		s.Must(client(s).ProduceSync(ctx, &kgo.Record{Topic: name, Timestamp: hourAgo}).FirstErr())
		record := read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 1)[0]
		s.Same(int8(1), record.Attrs.TimestampType())
		s.Same(true, before <= record.Timestamp.UnixMilli() && record.Timestamp.UnixMilli() <= time.Now().UnixMilli())
	})
}

func TestSizes(t *testing.T) {
	telling.Story(t, "large-message", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		value := make([]byte, 900_000)
		_, _ = rand.Read(value)
		s.Must(client(s).ProduceSync(ctx, &kgo.Record{Topic: name, Value: value}).FirstErr())
		s.Same(true, bytes.Equal(value, read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 1)[0].Value))
	})
	telling.Story(t, "oversize", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1, "max.message.bytes", "1000")
		value := make([]byte, 5000)
		_, _ = rand.Read(value)
		err := client(s).ProduceSync(ctx, &kgo.Record{Topic: name, Value: value}).FirstErr()
		s.Same(true, errors.Is(err, kerr.MessageTooLarge))
		produce(ctx, s, client(s), name, 0, "small")
		s.Same([]string{"small"}, values(read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 1)))
	})
	telling.Story(t, "many-messages", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		produce(ctx, s, client(s), name, 0, telling.Numbers(50_000)...)
		s.Same(telling.Numbers(50_000), values(read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 50_000)))
	})
}

func TestAcknowledgements(t *testing.T) {
	telling.Story(t, "acks", func(ctx context.Context, s *telling.Stage) {
		for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
			name := topic(ctx, s, 1)
			produce(ctx, s, client(s, kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()), name, 0, telling.Numbers(20)...)
			s.Same(telling.Numbers(20), values(read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 20)))
		}
	})
	telling.Story(t, "idempotence", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		told := produce(ctx, s, client(s, kgo.ProducerBatchMaxBytes(600)), name, 0, telling.Numbers(2000)...)
		for number, record := range told {
			s.Same(int64(number), record.Offset)
		}
		s.Same(int64(2000), produce(ctx, s, client(s), name, 0, "other")[0].Offset)
		s.Same(telling.Numbers(2000), values(read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 2000)))
	})
}

func TestKeys(t *testing.T) {
	keyed := kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))
	telling.Story(t, "key-order", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 4)
		var records []*kgo.Record
		for number := range 400 {
			key := fmt.Appendf(nil, "key-%d", number%10)
			records = append(records, &kgo.Record{Topic: name, Key: key, Value: fmt.Append(nil, number)})
		}
		s.Must(client(s, keyed).ProduceSync(ctx, records...).FirstErr())
		last := map[string]int{}
		for _, record := range read(ctx, s, client(s, kgo.ConsumeTopics(name)), 400) {
			var number int
			_, _ = fmt.Sscan(string(record.Value), &number)
			before, seen := last[string(record.Key)]
			s.Same(true, !seen || before < number)
			last[string(record.Key)] = number
		}
		s.Same(10, len(last))
	})
	telling.Story(t, "partitioning", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 5)
		producer := client(s, keyed)
		for _, key := range []string{"a", "bb", "ccc", "ключ"} {
			one, two := &kgo.Record{Topic: name, Key: []byte(key)}, &kgo.Record{Topic: name, Key: []byte(key)}
			s.Must(producer.ProduceSync(ctx, one, two).FirstErr())
			s.Same(one.Partition, two.Partition)
		}
		for partition := range int32(5) {
			s.Same(partition, produce(ctx, s, client(s), name, partition, "v")[0].Partition)
		}
	})
}
