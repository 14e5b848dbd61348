package kafkago

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go"

	"headrace/clients/telling"
)

func TestGroups(t *testing.T) {
	balancers := map[string]kafka.GroupBalancer{"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{}}
	for slug, balancer := range balancers {
		telling.Story(t, slug, func(ctx context.Context, s *telling.Stage) {
			name, group := topic(ctx, s, 4), telling.Unique("group")
			stays := member(ctx, s, group, name, balancer)
			share(s, stays, name, 4)
			comes := member(ctx, s, group, name, balancer)
			share(s, comes, name, 2)
			share(s, stays, name, 2)
		})
	}
	telling.Story(t, "group-split", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 6), telling.Unique("group")
		for range 2 {
			member(ctx, s, group, name, kafka.RangeGroupBalancer{})
		}
		share(s, member(ctx, s, group, name, kafka.RangeGroupBalancer{}), name, 2)
	})
	telling.Story(t, "group-leave", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 4), telling.Unique("group")
		stays := member(ctx, s, group, name, kafka.RangeGroupBalancer{})
		share(s, stays, name, 4)
		s.Run("a member comes and goes", func(t *testing.T) {
			guest := &telling.Stage{T: t}
			share(guest, member(ctx, guest, group, name, kafka.RangeGroupBalancer{}), name, 2)
		})
		share(s, stays, name, 4)
	})
	telling.Story(t, "partition-growth", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		shares := member(ctx, s, telling.Unique("group"), name, kafka.RangeGroupBalancer{})
		share(s, shares, name, 1)
		grow(ctx, s, name, 3)
		share(s, shares, name, 3)
	})
}

func commit(ctx context.Context, s *telling.Stage, group, name string, offset int64) error {
	s.Helper()
	answer, err := client(s).OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{name: {{Partition: 0, Offset: offset}}},
	})
	s.Must(err)
	return answer.Topics[name][0].Error
}

func committed(ctx context.Context, s *telling.Stage, group, name string) int64 {
	s.Helper()
	answer, err := client(s).OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{name: {0}}})
	s.Must(err)
	s.Must(answer.Error)
	return answer.Topics[name][0].CommittedOffset
}

func TestGroupAdministration(t *testing.T) {
	telling.Story(t, "describe-groups", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 1), telling.Unique("group")
		share(s, member(ctx, s, group, name, kafka.RangeGroupBalancer{}), name, 1)
		listed, err := client(s).ListGroups(ctx, &kafka.ListGroupsRequest{})
		s.Must(err)
		s.Must(listed.Error)
		found := false
		for _, entry := range listed.Groups {
			found = found || entry.GroupID == group
		}
		s.Same(true, found)
		described, err := client(s).DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
		s.Must(err)
		s.Same("Stable", described.Groups[0].GroupState)
		s.Same(1, len(described.Groups[0].Members))
	})
	telling.Story(t, "delete-group", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 1), telling.Unique("group")
		s.Must(commit(ctx, s, group, name, 3))
		answer, err := client(s).DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
		s.Must(err)
		s.Must(answer.Errors[group])
		s.Same(int64(-1), committed(ctx, s, group, name))
	})
	telling.Story(t, "delete-offsets", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 1), telling.Unique("group")
		s.Must(commit(ctx, s, group, name, 3))
		answer, err := client(s).OffsetDelete(ctx, &kafka.OffsetDeleteRequest{GroupID: group, Topics: map[string][]int{name: {0}}})
		s.Must(err)
		s.Must(answer.Error)
		s.Same(int64(-1), committed(ctx, s, group, name))
	})
	telling.Story(t, "alter-offsets", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 1), telling.Unique("group")
		for _, offset := range []int64{7, 2} {
			s.Must(commit(ctx, s, group, name, offset))
			s.Same(offset, committed(ctx, s, group, name))
		}
	})
}

func grow(ctx context.Context, s *telling.Stage, name string, count int32) {
	s.Helper()
	answer, err := client(s).CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: name, Count: count}},
	})
	s.Must(err)
	s.Must(answer.Errors[name])
}

func partitions(ctx context.Context, s *telling.Stage, name string) kafka.Topic {
	s.Helper()
	answer, err := client(s).Metadata(ctx, &kafka.MetadataRequest{Topics: []string{name}})
	s.Must(err)
	return answer.Topics[0]
}

func TestTopics(t *testing.T) {
	telling.Story(t, "topics", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 3)
		s.Same(3, len(partitions(ctx, s, name).Partitions))
		answer, err := client(s).DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}})
		s.Must(err)
		s.Must(answer.Errors[name])
	})
	telling.Story(t, "topic-errors", func(ctx context.Context, s *telling.Stage) {
		existing := topic(ctx, s, 1)
		wrong := map[error]kafka.TopicConfig{
			kafka.InvalidTopic:             {Topic: "bad name!", NumPartitions: 1, ReplicationFactor: 1},
			kafka.TopicAlreadyExists:       {Topic: existing, NumPartitions: 1, ReplicationFactor: 1},
			kafka.InvalidReplicationFactor: {Topic: "refused.replicas", NumPartitions: 1, ReplicationFactor: 9},
			kafka.InvalidConfiguration: {
				Topic: "refused.setting", NumPartitions: 1, ReplicationFactor: 1,
				ConfigEntries: []kafka.ConfigEntry{{ConfigName: "no.such.setting", ConfigValue: "1"}},
			},
			kafka.InvalidPartitionNumber: {Topic: "refused.partitions", NumPartitions: 0, ReplicationFactor: 1},
		}
		for wanted, config := range wrong {
			answer, err := client(s).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
			s.Must(err)
			if !errors.Is(answer.Errors[config.Topic], wanted) {
				s.Fail("%s: wanted %v, saw %v", config.Topic, wanted, answer.Errors[config.Topic])
			}
		}
	})
	telling.Story(t, "unknown-topic", func(ctx context.Context, s *telling.Stage) {
		s.Same(true, errors.Is(partitions(ctx, s, telling.Unique("never-created")).Error, kafka.UnknownTopicOrPartition))
	})
	telling.Story(t, "partitions", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 2)
		grow(ctx, s, name, 4)
		s.Until("four partitions are seen", func() bool { return len(partitions(ctx, s, name).Partitions) == 4 })
	})
	telling.Story(t, "cluster", func(ctx context.Context, s *telling.Stage) {
		answer, err := client(s).Metadata(ctx, &kafka.MetadataRequest{})
		s.Must(err)
		s.Same(telling.Bootstrap(s.T), fmt.Sprintf("%s:%d", answer.Brokers[0].Host, answer.Brokers[0].Port))
		s.Same(answer.Brokers[0].ID, answer.Controller.ID)
	})
}

func setting(ctx context.Context, s *telling.Stage, topic, name string) string {
	s.Helper()
	answer, err := client(s).DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{name}}},
	})
	s.Must(err)
	s.Must(answer.Resources[0].Error)
	return answer.Resources[0].ConfigEntries[0].ConfigValue
}

func TestConfigs(t *testing.T) {
	telling.Story(t, "configs", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1, "retention.ms", "123456")
		s.Same("123456", setting(ctx, s, name, "retention.ms"))
		answer, err := client(s).AlterConfigs(ctx, &kafka.AlterConfigsRequest{Resources: []kafka.AlterConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: name, Configs: []kafka.AlterConfigRequestConfig{{Name: "retention.ms", Value: "5000"}},
		}}})
		s.Must(err)
		for _, problem := range answer.Errors {
			s.Must(problem)
		}
		s.Until("the new value is seen", func() bool { return setting(ctx, s, name, "retention.ms") == "5000" })
	})
	telling.Story(t, "incremental-configs", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		answer, err := client(s).IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
			Resources: []kafka.IncrementalAlterConfigsRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: name, Configs: []kafka.IncrementalAlterConfigsRequestConfig{
					{Name: "retention.ms", Value: "5000", ConfigOperation: kafka.ConfigOperationSet},
				},
			}},
		})
		s.Must(err)
		s.Must(answer.Resources[0].Error)
		s.Until("the new value is seen", func() bool { return setting(ctx, s, name, "retention.ms") == "5000" })
	})
}
