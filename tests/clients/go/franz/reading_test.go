package franz

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/clients/telling"
)

func seek(consumer *kgo.Client, topic string, offset int64) {
	consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: offset}}})
}

func TestSeeking(t *testing.T) {
	telling.Story(t, "seek", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		produce(ctx, s, client(s), name, 0, telling.Numbers(10)...)
		consumer := client(s, at(name, kgo.NewOffset().At(7)))
		s.Same([]string{"7", "8", "9"}, values(read(ctx, s, consumer, 3)))
		seek(consumer, name, 4)
		s.Same(int64(4), read(ctx, s, consumer, 1)[0].Offset)
		s.Same(int64(0), read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 1)[0].Offset)
		end := client(s, at(name, kgo.NewOffset().AtEnd()))
		s.Same(true, silent(ctx, end))
		produce(ctx, s, client(s), name, 0, "new")
		s.Same([]string{"new"}, values(read(ctx, s, end, 1)))
		s.Same(int64(0), read(ctx, s, client(s, at(name, kgo.NewOffset().At(1000))), 1)[0].Offset)
	})
	telling.Story(t, "seek-by-time", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		start := time.Now().Add(-time.Hour).UnixMilli()
		producer := client(s)
		for number := range 10 {
			stamp := time.UnixMilli(start + int64(number)*1000)
			s.Must(producer.ProduceSync(ctx, &kgo.Record{Topic: name, Value: fmt.Append(nil, number), Timestamp: stamp}).FirstErr())
		}
		a := admin(s)
		for after, wanted := range map[int64]int64{-5: 0, 3000: 3, 3001: 4, 60_000: 10} {
			listed, err := a.ListOffsetsAfterMilli(ctx, start+after, name)
			s.Must(err)
			found, _ := listed.Lookup(name, 0)
			s.Same(wanted, found.Offset)
		}
		s.Same(int64(6), read(ctx, s, client(s, at(name, kgo.NewOffset().AfterMilli(start+5500))), 1)[0].Offset)
	})
}

const dropped = 40

// readsOn reads past offsets that have no record, up to the newest value, and what is produced after that.
func readsOn(ctx context.Context, s *telling.Stage, name, newest string) {
	s.Helper()
	for _, isolation := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
		consumer := client(s, at(name, kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(isolation))
		last := ""
		for last != newest {
			last = string(read(ctx, s, consumer, 1)[0].Value)
		}
		s.Same(true, silent(ctx, consumer))
		newest = telling.Unique("after")
		record := &kgo.Record{Topic: name, Key: []byte("another"), Value: []byte(newest)}
		s.Must(client(s).ProduceSync(ctx, record).FirstErr())
		s.Same([]string{newest}, values(read(ctx, s, consumer, 1)))
	}
}

func TestDroppedRecords(t *testing.T) {
	telling.Story(t, "dropped-records", func(ctx context.Context, s *telling.Stage) {
		deduplicated := topic(ctx, s, 1, "headrace.dedup.window.ms", "600000")
		compacted := topic(ctx, s, 1, "cleanup.policy", "compact", "segment.bytes", "100", "min.cleanable.dirty.ratio", "0")
		producer := client(s)
		for number := range dropped {
			same := &kgo.Record{Topic: deduplicated, Value: []byte("same"), Headers: []kgo.RecordHeader{{Key: "headrace.id", Value: []byte("same")}}}
			s.Must(producer.ProduceSync(ctx, same).FirstErr())
			s.Must(producer.ProduceSync(ctx, &kgo.Record{Topic: compacted, Key: []byte("k"), Value: fmt.Append(nil, number)}).FirstErr())
		}
		readsOn(ctx, s, deduplicated, "same")
		s.Until("it is compacted", func() bool {
			return read(ctx, s, client(s, at(compacted, kgo.NewOffset().AtStart())), 1)[0].Offset == dropped-2
		})
		readsOn(ctx, s, compacted, fmt.Sprint(dropped-1))
	})
}

func TestPause(t *testing.T) {
	telling.Story(t, "pause", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 2)
		consumer := client(s, kgo.ConsumeTopics(name))
		zero := map[string][]int32{name: {0}}
		consumer.PauseFetchPartitions(zero)
		produce(ctx, s, client(s), name, 0, "0")
		produce(ctx, s, client(s), name, 1, "1")
		s.Same([]string{"1"}, values(read(ctx, s, consumer, 1)))
		s.Same(true, silent(ctx, consumer))
		consumer.ResumeFetchPartitions(zero)
		s.Same([]string{"0"}, values(read(ctx, s, consumer, 1)))
	})
}

func TestRecreatedTopic(t *testing.T) {
	telling.Story(t, "recreated-topic", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		produce(ctx, s, client(s), name, 0, telling.Numbers(5)...)
		consumer := client(s, kgo.ConsumeTopics(name))
		read(ctx, s, consumer, 5)
		deleted, err := admin(s).DeleteTopics(ctx, name)
		s.Must(err)
		s.Must(deleted.Error())
		named(ctx, s, name, 1)
		produce(ctx, s, client(s), name, 0, "new")
		// This client wants to be told that the topic is another one now; until then it reports an unknown topic id.
		consumer.PurgeTopicsFromConsuming(name)
		consumer.AddConsumeTopics(name)
		s.Same([]string{"new"}, values(read(ctx, s, consumer, 1)))
	})
}
