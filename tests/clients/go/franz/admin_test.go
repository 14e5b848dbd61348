package franz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"headrace/clients/telling"
)

func TestTopics(t *testing.T) {
	telling.Story(t, "topics", func(ctx context.Context, s *telling.Stage) {
		a, name := admin(s), telling.Unique("topic")
		created, err := a.CreateTopic(ctx, 3, 1, nil, name)
		s.Must(err)
		s.Same(int32(3), created.NumPartitions)
		listed, err := a.ListTopics(ctx, name)
		s.Must(err)
		s.Same(3, len(listed[name].Partitions))
		s.Same(created.ID, listed[name].ID)
		_, err = a.DeleteTopic(ctx, name)
		s.Must(err)
		s.Until("the topic is gone", func() bool {
			all, err := a.ListTopics(ctx)
			s.Must(err)
			return !all.Has(name)
		})
	})
	telling.Story(t, "topic-errors", func(ctx context.Context, s *telling.Stage) {
		a, existing := admin(s), topic(ctx, s, 1)
		unknown, wrong := map[string]*string{"no.such.setting": kadm.StringPtr("1")}, map[string]*string{"retention.ms": kadm.StringPtr("soon")}
		cases := []struct {
			name       string
			partitions int32
			replicas   int16
			config     map[string]*string
			err        error
		}{
			{"bad name!", 1, 1, nil, kerr.InvalidTopicException},
			{"..", 1, 1, nil, kerr.InvalidTopicException},
			{strings.Repeat("x", 250), 1, 1, nil, kerr.InvalidTopicException},
			{existing, 1, 1, nil, kerr.TopicAlreadyExists},
			{"refused.replicas", 1, 9, nil, kerr.InvalidReplicationFactor},
			{"refused.partitions", 0, 1, nil, kerr.InvalidPartitions},
			{"refused.setting", 1, 1, unknown, kerr.InvalidConfig},
			{"refused.value", 1, 1, wrong, kerr.InvalidConfig},
		}
		for _, wanted := range cases {
			answer, err := a.CreateTopic(ctx, wanted.partitions, wanted.replicas, wanted.config, wanted.name)
			if !errors.Is(err, wanted.err) && !errors.Is(answer.Err, wanted.err) {
				s.Fail("%s: wanted %v, saw %v", wanted.name, wanted.err, err)
			}
		}
		_, err := a.DeleteTopic(ctx, "no.such.topic")
		s.Same(true, errors.Is(err, kerr.UnknownTopicOrPartition))
	})
	telling.Story(t, "unknown-topic", func(ctx context.Context, s *telling.Stage) {
		name := telling.Unique("never-created")
		listed, err := admin(s).ListTopics(ctx, name)
		s.Must(err)
		s.Same(kerr.UnknownTopicOrPartition, listed[name].Err)
		err = client(s, kgo.UnknownTopicRetries(1)).ProduceSync(ctx, &kgo.Record{Topic: name}).FirstErr()
		s.Same(kerr.UnknownTopicOrPartition, err)
	})
	telling.Story(t, "partitions", func(ctx context.Context, s *telling.Stage) {
		a, name := admin(s), topic(ctx, s, 2)
		grown, err := a.UpdatePartitions(ctx, 4, name)
		s.Must(err)
		s.Must(grown.Error())
		s.Until("four partitions are seen", func() bool {
			listed, err := a.ListTopics(ctx, name)
			s.Must(err)
			return len(listed[name].Partitions) == 4
		})
		produce(ctx, s, client(s), name, 3, "new")
		refused, err := a.UpdatePartitions(ctx, 1, name)
		s.Must(err)
		s.Same(kerr.InvalidPartitions, refused.Error())
	})
}

func setting(ctx context.Context, s *telling.Stage, topic, name string) *kadm.Config {
	s.Helper()
	described, err := admin(s).DescribeTopicConfigs(ctx, topic)
	s.Must(err)
	for _, config := range described[0].Configs {
		if config.Key == name {
			return &config
		}
	}
	s.Fail("topic %s has no setting %s: %v", topic, name, described)
	return nil
}

func TestConfigs(t *testing.T) {
	telling.Story(t, "configs", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1, "retention.ms", "123456", "segment.bytes", "2000000")
		s.Same("123456", setting(ctx, s, name, "retention.ms").MaybeValue())
		s.Same(kmsg.ConfigSourceDynamicTopicConfig, setting(ctx, s, name, "retention.ms").Source)
		s.Same(kmsg.ConfigSourceDefaultConfig, setting(ctx, s, name, "cleanup.policy").Source)
		altered, err := admin(s).AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: kadm.StringPtr("5000")}}, name)
		s.Must(err)
		s.Must(altered[0].Err)
		s.Until("the new value is seen", func() bool { return setting(ctx, s, name, "retention.ms").MaybeValue() == "5000" })
		s.Same(true, setting(ctx, s, name, "segment.bytes").MaybeValue() != "2000000")
	})
	telling.Story(t, "incremental-configs", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1, "segment.bytes", "2000000")
		alter := func(operation kadm.IncrementalOp, key, value string) error {
			altered, err := admin(s).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: operation, Name: key, Value: kadm.StringPtr(value)}}, name)
			s.Must(err)
			return altered[0].Err
		}
		steps := []struct {
			operation          kadm.IncrementalOp
			key, value, wanted string
		}{
			{kadm.SetConfig, "retention.ms", "5000", "5000"},
			{kadm.AppendConfig, "cleanup.policy", "compact", "delete,compact"},
			{kadm.SubtractConfig, "cleanup.policy", "delete", "compact"},
			{kadm.DeleteConfig, "cleanup.policy", "", "delete"},
		}
		for _, step := range steps {
			s.Must(alter(step.operation, step.key, step.value))
			s.Until(step.key+" is "+step.wanted, func() bool { return setting(ctx, s, name, step.key).MaybeValue() == step.wanted })
		}
		s.Same("2000000", setting(ctx, s, name, "segment.bytes").MaybeValue())
		s.Same(kerr.InvalidConfig, alter(kadm.SetConfig, "retention.ms", "soon"))
	})
}

func TestCluster(t *testing.T) {
	telling.Story(t, "cluster", func(ctx context.Context, s *telling.Stage) {
		metadata, err := admin(s).BrokerMetadata(ctx)
		s.Must(err)
		s.Same(true, metadata.Cluster != "")
		broker := metadata.Brokers[0]
		s.Same(telling.Bootstrap(s.T), fmt.Sprintf("%s:%d", broker.Host, broker.Port))
		s.Same(broker.NodeID, metadata.Controller)
		_, err = admin(s).DescribeBrokerLogDirs(ctx, broker.NodeID, nil)
		s.Must(err)
		_, err = admin(s).ApiVersions(ctx)
		s.Must(err)
	})
}

func TestOffsets(t *testing.T) {
	offset := func(s *telling.Stage, name string, listed kadm.ListedOffsets, err error) int64 {
		s.Helper()
		s.Must(err)
		found, _ := listed.Lookup(name, 0)
		s.Must(found.Err)
		return found.Offset
	}
	telling.Story(t, "watermarks", func(ctx context.Context, s *telling.Stage) {
		a, name := admin(s), topic(ctx, s, 1)
		listed, err := a.ListEndOffsets(ctx, name)
		s.Same(int64(0), offset(s, name, listed, err))
		produce(ctx, s, client(s), name, 0, telling.Numbers(3)...)
		listed, err = a.ListStartOffsets(ctx, name)
		s.Same(int64(0), offset(s, name, listed, err))
		fetches := client(s, at(name, kgo.NewOffset().AtStart())).PollFetches(ctx)
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { s.Same(int64(3), p.HighWatermark) })
	})
	telling.Story(t, "list-offsets", func(ctx context.Context, s *telling.Stage) {
		a, name := admin(s), topic(ctx, s, 1)
		start := time.Now().Add(-time.Hour).UnixMilli()
		producer := client(s)
		for _, step := range []int64{0, 5000, 2000} {
			s.Must(producer.ProduceSync(ctx, &kgo.Record{Topic: name, Timestamp: time.UnixMilli(start + step)}).FirstErr())
		}
		listed, err := a.ListEndOffsets(ctx, name)
		s.Same(int64(3), offset(s, name, listed, err))
		listed, err = a.ListMaxTimestampOffsets(ctx, name)
		s.Same(int64(1), offset(s, name, listed, err))
		listed, err = a.ListOffsetsAfterMilli(ctx, start+1, name)
		s.Same(int64(1), offset(s, name, listed, err))
	})
	telling.Story(t, "delete-records", func(ctx context.Context, s *telling.Stage) {
		a, name := admin(s), topic(ctx, s, 1)
		produce(ctx, s, client(s), name, 0, telling.Numbers(10)...)
		to := func(offset int64) kadm.DeleteRecordsResponse {
			offsets := kadm.Offsets{}
			offsets.AddOffset(name, 0, offset, -1)
			deleted, err := a.DeleteRecords(ctx, offsets)
			s.Must(err)
			answer, _ := deleted.Lookup(name, 0)
			return answer
		}
		s.Same(int64(6), to(6).LowWatermark)
		s.Same([]string{"6", "7", "8", "9"}, values(read(ctx, s, client(s, at(name, kgo.NewOffset().AtStart())), 4)))
		s.Same(kerr.OffsetOutOfRange, to(100).Err)
	})
}
