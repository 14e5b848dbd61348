package sarama

import (
	"context"
	"errors"
	"testing"

	"github.com/IBM/sarama"

	"headrace/clients/telling"
)

func described(s *telling.Stage, name string) *sarama.TopicMetadata {
	s.Helper()
	found, err := admin(s).DescribeTopics([]string{name})
	s.Must(err)
	return found[0]
}

func TestTopics(t *testing.T) {
	telling.Story(t, "topics", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 3, "retention.ms", "123456")
		listed, err := admin(s).ListTopics()
		s.Must(err)
		s.Same(int32(3), listed[name].NumPartitions)
		s.Same("123456", *listed[name].ConfigEntries["retention.ms"])
		s.Same(3, len(described(s, name).Partitions))
		s.Must(admin(s).DeleteTopic(name))
		s.Until("it is gone", func() bool { return described(s, name).Err == sarama.ErrUnknownTopicOrPartition })
	})
	telling.Story(t, "topic-errors", func(ctx context.Context, s *telling.Stage) {
		existing, tooMany := topic(s, 1), detail(1)
		tooMany.ReplicationFactor = 9
		for _, wrong := range []struct {
			name   string
			detail *sarama.TopicDetail
			wanted sarama.KError
		}{
			{"bad name!", detail(1), sarama.ErrInvalidTopic},
			{existing, detail(1), sarama.ErrTopicAlreadyExists},
			{"refused.replicas", tooMany, sarama.ErrInvalidReplicationFactor},
			{"refused.setting", detail(1, "no.such.setting", "1"), sarama.ErrInvalidConfig},
			{"refused.partitions", detail(0), sarama.ErrInvalidPartitions},
		} {
			if err := admin(s).CreateTopic(wrong.name, wrong.detail, false); !errors.Is(err, wrong.wanted) {
				s.Fail("%s: wanted %v, saw %v", wrong.name, wrong.wanted, err)
			}
		}
	})
	telling.Story(t, "unknown-topic", func(ctx context.Context, s *telling.Stage) {
		s.Same(sarama.ErrUnknownTopicOrPartition, described(s, telling.Unique("never-created")).Err)
	})
	telling.Story(t, "partitions", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 2)
		s.Must(admin(s).CreatePartitions(name, 4, nil, false))
		s.Until("four partitions are seen", func() bool { return len(described(s, name).Partitions) == 4 })
		s.Same(true, errors.Is(admin(s).CreatePartitions(name, 3, nil, false), sarama.ErrInvalidPartitions))
	})
	telling.Story(t, "cluster", func(ctx context.Context, s *telling.Stage) {
		found, controller, err := admin(s).DescribeCluster()
		s.Must(err)
		s.Same(telling.Bootstrap(s.T), found[0].Addr())
		s.Same(found[0].ID(), controller)
	})
	telling.Story(t, "delete-records", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		produce(s, name, telling.Numbers(10)...)
		s.Must(admin(s).DeleteRecords(name, map[int32]int64{0: 6}))
		s.Same([]string{"6", "7", "8", "9"}, values(all(ctx, s, name, 4)))
	})
	telling.Story(t, "recreated-topic", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		produce(s, name, "old", "old", "old")
		consumer, err := sarama.NewConsumer(brokers(s), config(nil))
		s.Must(err)
		defer consumer.Close()
		reader, err := consumer.ConsumePartition(name, 0, sarama.OffsetOldest)
		s.Must(err)
		read(ctx, s, reader, 3)
		s.Must(admin(s).DeleteTopic(name))
		s.Until("it is gone", func() bool { return described(s, name).Err == sarama.ErrUnknownTopicOrPartition })
		s.Must(admin(s).CreateTopic(name, detail(1), false))
		produce(s, name, "new")
		// This client goes on where it was, behind the end of the new topic, until it is told to begin again.
		_ = reader.Close()
		reader, err = consumer.ConsumePartition(name, 0, sarama.OffsetOldest)
		s.Must(err)
		defer reader.Close()
		s.Same([]string{"new"}, values(read(ctx, s, reader, 1)))
	})
}

func setting(s *telling.Stage, topic, name string) string {
	s.Helper()
	entries, err := admin(s).DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}})
	s.Must(err)
	return entries[0].Value
}

func TestConfigs(t *testing.T) {
	telling.Story(t, "configs", func(ctx context.Context, s *telling.Stage) {
		name, value := topic(s, 1, "retention.ms", "123456"), "5000"
		s.Same("123456", setting(s, name, "retention.ms"))
		s.Must(admin(s).AlterConfig(sarama.TopicResource, name, map[string]*string{"retention.ms": &value}, false))
		s.Until("the new value is seen", func() bool { return setting(s, name, "retention.ms") == value })
		wrong := "soon"
		err := admin(s).AlterConfig(sarama.TopicResource, name, map[string]*string{"retention.ms": &wrong}, false)
		s.Same(true, errors.Is(err, sarama.ErrInvalidConfig))
	})
	telling.Story(t, "incremental-configs", func(ctx context.Context, s *telling.Stage) {
		name, more := topic(s, 1), "compact"
		change := func(operation sarama.IncrementalAlterConfigsOperation, wanted string) {
			s.Helper()
			entry := sarama.IncrementalAlterConfigsEntry{Operation: operation, Value: &more}
			s.Must(admin(s).IncrementalAlterConfig(
				sarama.TopicResource, name, map[string]sarama.IncrementalAlterConfigsEntry{"cleanup.policy": entry}, false,
			))
			s.Until("the new value is seen", func() bool { return setting(s, name, "cleanup.policy") == wanted })
		}
		change(sarama.IncrementalAlterConfigsOperationAppend, "delete,compact")
		change(sarama.IncrementalAlterConfigsOperationSubtract, "delete")
		change(sarama.IncrementalAlterConfigsOperationSet, "compact")
	})
}
