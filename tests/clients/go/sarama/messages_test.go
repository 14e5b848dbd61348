package sarama

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"headrace/clients/telling"
)

func TestMessages(t *testing.T) {
	telling.Story(t, "round-trip", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		pairs := [][2]sarama.Encoder{
			{sarama.StringEncoder("key"), sarama.StringEncoder("value")}, {nil, sarama.StringEncoder("no key")},
			{sarama.StringEncoder("no value"), nil}, {sarama.StringEncoder(""), sarama.StringEncoder("")},
			{sarama.StringEncoder("schlüssel"), sarama.StringEncoder("värde — 値 🌊")},
			{sarama.ByteEncoder{0, 255}, sarama.ByteEncoder{255, 0}},
		}
		p := producer(s, nil)
		for _, pair := range pairs {
			_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: name, Key: pair[0], Value: pair[1]})
			s.Must(err)
		}
		bytesOf := func(encoder sarama.Encoder) []byte {
			if encoder == nil {
				return nil
			}
			encoded, err := encoder.Encode()
			s.Must(err)
			return encoded
		}
		for at, message := range all(ctx, s, name, len(pairs)) {
			s.Same([2][]byte{bytesOf(pairs[at][0]), bytesOf(pairs[at][1])}, [2][]byte{message.Key, message.Value})
		}
	})
	telling.Story(t, "compression", func(ctx context.Context, s *telling.Stage) {
		codecs := []sarama.CompressionCodec{
			sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
		}
		for _, codec := range codecs {
			name := topic(s, 1)
			p := producer(s, func(c *sarama.Config) { c.Producer.Compression = codec })
			s.Must(p.SendMessages(messages(name, telling.Numbers(100)...)))
			s.Same(telling.Numbers(100), values(all(ctx, s, name, 100)))
		}
	})
	telling.Story(t, "headers", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		headers := []sarama.RecordHeader{
			{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Value: []byte("2")}, {Key: []byte("a"), Value: []byte("3")},
		}
		_, _, err := producer(s, nil).SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder("v"), Headers: headers})
		s.Must(err)
		var seen []sarama.RecordHeader
		for _, header := range all(ctx, s, name, 1)[0].Headers {
			seen = append(seen, *header)
		}
		s.Same(headers, seen)
	})
	telling.Story(t, "timestamps", func(ctx context.Context, s *telling.Stage) {
		name, hourAgo := topic(s, 1), time.Now().Add(-time.Hour)
		_, _, err := producer(s, nil).SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder("v"), Timestamp: hourAgo})
		s.Must(err)
		s.Same(hourAgo.UnixMilli(), all(ctx, s, name, 1)[0].Timestamp.UnixMilli())
	})
	telling.Story(t, "log-append-time", func(ctx context.Context, s *telling.Stage) {
		name, before := topic(s, 1, "message.timestamp.type", "LogAppendTime"), time.Now().UnixMilli()
		old := &sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder("v"), Timestamp: time.Now().Add(-time.Hour)}
		_, _, err := producer(s, nil).SendMessage(old)
		s.Must(err)
		s.Same(true, all(ctx, s, name, 1)[0].Timestamp.UnixMilli() >= before)
	})
	telling.Story(t, "large-message", func(ctx context.Context, s *telling.Stage) {
		name, value := topic(s, 1), make([]byte, 900_000)
		_, _ = rand.Read(value)
		_, _, err := producer(s, nil).SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.ByteEncoder(value)})
		s.Must(err)
		s.Same(true, bytes.Equal(value, all(ctx, s, name, 1)[0].Value))
	})
	telling.Story(t, "oversize", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1, "max.message.bytes", "1000")
		_, _, err := producer(s, nil).SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.ByteEncoder(make([]byte, 5000))})
		s.Same(true, errors.Is(err, sarama.ErrMessageSizeTooLarge))
	})
	telling.Story(t, "acks", func(ctx context.Context, s *telling.Stage) {
		for _, acks := range []sarama.RequiredAcks{sarama.NoResponse, sarama.WaitForLocal, sarama.WaitForAll} {
			name := topic(s, 1)
			p := producer(s, func(c *sarama.Config) { c.Producer.RequiredAcks = acks })
			s.Must(p.SendMessages(messages(name, telling.Numbers(20)...)))
			s.Same(telling.Numbers(20), values(all(ctx, s, name, 20)))
		}
	})
	telling.Story(t, "idempotence", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		p := producer(s, idempotent)
		for start := 0; start < 100; start += 20 {
			s.Must(p.SendMessages(messages(name, telling.Numbers(100)[start:start+20]...)))
		}
		s.Same(telling.Numbers(100), values(all(ctx, s, name, 100)))
	})
	telling.Story(t, "key-order", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 4)
		sent := messages(name, telling.Numbers(100)...)
		for _, message := range sent {
			message.Key = sarama.StringEncoder("key")
		}
		s.Must(producer(s, nil).SendMessages(sent))
		s.Same(telling.Numbers(100), values(read(ctx, s, partition(s, name, sent[0].Partition, sarama.OffsetOldest, nil), 100)))
	})
	telling.Story(t, "partitioning", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 3)
		p := producer(s, func(c *sarama.Config) { c.Producer.Partitioner = sarama.NewManualPartitioner })
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: name, Partition: 2, Value: sarama.StringEncoder("to two")})
		s.Must(err)
		s.Same([]string{"to two"}, values(read(ctx, s, partition(s, name, 2, sarama.OffsetOldest, nil), 1)))
	})
	telling.Story(t, "many-messages", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		produce(s, name, telling.Numbers(20_000)...)
		s.Same(telling.Numbers(20_000), values(all(ctx, s, name, 20_000)))
	})
}

func TestReading(t *testing.T) {
	telling.Story(t, "seek", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		produce(s, name, telling.Numbers(10)...)
		s.Same([]string{"7", "8"}, values(read(ctx, s, partition(s, name, 0, 7, nil), 2)))
		s.Same([]string{"0"}, values(all(ctx, s, name, 1)))
		newest := partition(s, name, 0, sarama.OffsetNewest, nil)
		produce(s, name, "new")
		s.Same([]string{"new"}, values(read(ctx, s, newest, 1)))
		beyond, err := sarama.NewConsumer(brokers(s), config(nil))
		s.Must(err)
		defer beyond.Close()
		_, err = beyond.ConsumePartition(name, 0, 1000)
		s.Same(true, errors.Is(err, sarama.ErrOffsetOutOfRange))
	})
	telling.Story(t, "dropped-records", func(ctx context.Context, s *telling.Stage) {
		deduplicated := topic(s, 1, "headrace.dedup.window.ms", "600000")
		compacted := topic(s, 1, "cleanup.policy", "compact", "segment.bytes", "100", "min.cleanable.dirty.ratio", "0")
		p, dropped := producer(s, nil), 40
		send := func(message *sarama.ProducerMessage) {
			_, _, err := p.SendMessage(message)
			s.Must(err)
		}
		for number := range dropped {
			id := []sarama.RecordHeader{{Key: []byte("headrace.id"), Value: []byte("same")}}
			send(&sarama.ProducerMessage{Topic: deduplicated, Value: sarama.StringEncoder("same"), Headers: id})
			value := sarama.StringEncoder(fmt.Sprint(number))
			send(&sarama.ProducerMessage{Topic: compacted, Key: sarama.StringEncoder("k"), Value: value})
		}
		s.Until("it is compacted", func() bool { return all(ctx, s, compacted, 1)[0].Offset == int64(dropped-2) })
		for name, newest := range map[string]string{deduplicated: "same", compacted: fmt.Sprint(dropped - 1)} {
			reader := partition(s, name, 0, sarama.OffsetOldest, nil)
			last := ""
			for last != newest {
				last = string(read(ctx, s, reader, 1)[0].Value)
			}
			send(&sarama.ProducerMessage{Topic: name, Key: sarama.StringEncoder("another"), Value: sarama.StringEncoder("after")})
			s.Same([]string{"after"}, values(read(ctx, s, reader, 1)))
		}
	})
	telling.Story(t, "seek-by-time", func(ctx context.Context, s *telling.Stage) {
		name, start, p := topic(s, 1), time.Now().Add(-time.Hour), producer(s, nil)
		for number := range 10 {
			stamp := start.Add(time.Duration(number) * time.Second)
			_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: name, Value: sarama.StringEncoder(fmt.Sprint(number)), Timestamp: stamp})
			s.Must(err)
		}
		offset, err := client(s).GetOffset(name, 0, start.Add(5500*time.Millisecond).UnixMilli())
		s.Must(err)
		s.Same([]string{"6"}, values(read(ctx, s, partition(s, name, 0, offset, nil), 1)))
	})
	telling.Story(t, "pause", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		produce(s, name, "before")
		reader := partition(s, name, 0, sarama.OffsetOldest, nil)
		read(ctx, s, reader, 1)
		reader.Pause()
		time.Sleep(300 * time.Millisecond) // the fetch that is on its way comes back empty
		produce(s, name, "after")
		select {
		case <-reader.Messages():
			s.Fail("a message came from a paused partition")
		case <-time.After(time.Second):
		}
		reader.Resume()
		s.Same([]string{"after"}, values(read(ctx, s, reader, 1)))
	})
	telling.Story(t, "watermarks", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		produce(s, name, telling.Numbers(3)...)
		c := client(s)
		first, err := c.GetOffset(name, 0, sarama.OffsetOldest)
		s.Must(err)
		last, err := c.GetOffset(name, 0, sarama.OffsetNewest)
		s.Must(err)
		reader := partition(s, name, 0, sarama.OffsetOldest, nil)
		read(ctx, s, reader, 3)
		s.Same([]int64{0, 3, 3}, []int64{first, last, reader.HighWaterMarkOffset()})
	})
}
