package sarama

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"headrace/clients/telling"
)

// committed is a group's offset in the first partition; -1 without one.
func committed(s *telling.Stage, group, name string) int64 {
	s.Helper()
	answer, err := admin(s).ListConsumerGroupOffsets(group, map[string][]int32{name: {0}})
	s.Must(err)
	block := answer.GetBlock(name, 0)
	if block == nil {
		return -1
	}
	if block.Err != sarama.ErrNoError {
		s.Fail("the offset of %s: %v", group, block.Err)
	}
	return block.Offset
}

// commit sets a group's offset in the first partition, as one that is not a member, forwards or back.
func commit(s *telling.Stage, group, name string, offset int64) {
	s.Helper()
	offsets, err := sarama.NewOffsetManagerFromClient(group, client(s))
	s.Must(err)
	managed, err := offsets.ManagePartition(name, 0)
	s.Must(err)
	managed.MarkOffset(offset, "")
	managed.ResetOffset(offset, "")
	offsets.Commit()
	s.Must(managed.Close())
	s.Must(offsets.Close())
}

func TestGroups(t *testing.T) {
	telling.Story(t, "commit", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 1), telling.Unique("group")
		produce(s, name, telling.Numbers(10)...)
		commit(s, group, name, 4)
		resumed := join(s, group, nil, name)
		s.Until("the rest is read", func() bool { _, _, seen := resumed.share(); return seen == 6 })
		resumed.leave()
		s.Same(int64(10), committed(s, group, name))
	})
	telling.Story(t, "group-split", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 6), telling.Unique("group")
		members := []*member{join(s, group, nil, name), join(s, group, nil, name), join(s, group, nil, name)}
		settle(s, []int{2, 2, 2}, members...)
		p := producer(s, func(c *sarama.Config) { c.Producer.Partitioner = sarama.NewRoundRobinPartitioner })
		s.Must(p.SendMessages(messages(name, telling.Numbers(60)...)))
		s.Until("60 messages reach the group", func() bool {
			total := 0
			for _, m := range members {
				_, _, seen := m.share()
				total += seen
			}
			return total == 60
		})
		times := map[string]int{}
		for _, m := range members {
			for value, count := range m.seen {
				times[value] += count
			}
		}
		for _, value := range telling.Numbers(60) {
			s.Same(1, times[value])
		}
	})
	telling.Story(t, "group-leave", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 4), telling.Unique("group")
		stays, leaves := join(s, group, nil, name), join(s, group, nil, name)
		settle(s, []int{2, 2}, stays, leaves)
		leaves.leave()
		settle(s, []int{4}, stays)
		settle(s, []int{2, 2}, stays, join(s, group, nil, name))
	})
	strategies := map[string]func() sarama.BalanceStrategy{
		"range": sarama.NewBalanceStrategyRange, "roundrobin": sarama.NewBalanceStrategyRoundRobin, "sticky": sarama.NewBalanceStrategySticky,
	}
	for slug, strategy := range strategies {
		telling.Story(t, slug, func(ctx context.Context, s *telling.Stage) {
			one, two, group := topic(s, 2), topic(s, 2), telling.Unique("group")
			with := func(c *sarama.Config) {
				c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
			}
			stays := join(s, group, with, one, two)
			settle(s, []int{4}, stays)
			comes := join(s, group, with, one, two)
			settle(s, []int{2, 2}, stays, comes)
			described, err := admin(s).DescribeConsumerGroups([]string{group})
			s.Must(err)
			s.Same(slug, described[0].Protocol)
			comes.leave()
			settle(s, []int{4}, stays)
		})
	}
	telling.Story(t, "static-member", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 4), telling.Unique("group")
		as := func(instance string) *member {
			return join(s, group, func(c *sarama.Config) {
				c.Consumer.Group.InstanceId = instance
				c.Consumer.Group.Session.Timeout = 20 * time.Second
			}, name)
		}
		stays := as("stays")
		settle(s, []int{4}, stays)
		restarts := as("restarts")
		settle(s, []int{2, 2}, stays, restarts)
		_, before, _ := stays.share()
		restarts.leave()
		settle(s, []int{2, 2}, stays, as("restarts"))
		_, after, _ := stays.share()
		s.Same(before, after)
	})
	telling.Story(t, "partition-growth", func(ctx context.Context, s *telling.Stage) {
		name := topic(s, 1)
		alone := join(s, telling.Unique("group"), nil, name)
		settle(s, []int{1}, alone)
		s.Must(admin(s).CreatePartitions(name, 3, nil, false))
		settle(s, []int{3}, alone)
	})
}

func TestGroupAdministration(t *testing.T) {
	telling.Story(t, "describe-groups", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 1), telling.Unique("group")
		settle(s, []int{1}, join(s, group, nil, name))
		listed, err := admin(s).ListConsumerGroups()
		s.Must(err)
		s.Same("consumer", listed[group])
		described, err := admin(s).DescribeConsumerGroups([]string{group})
		s.Must(err)
		s.Same("Stable 1", fmt.Sprint(described[0].State, " ", len(described[0].Members)))
		for _, m := range described[0].Members {
			assignment, err := m.GetMemberAssignment()
			s.Must(err)
			s.Same([]int32{0}, assignment.Topics[name])
		}
	})
	telling.Story(t, "delete-group", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 1), telling.Unique("group")
		living := join(s, group, nil, name)
		settle(s, []int{1}, living)
		s.Same(true, errors.Is(admin(s).DeleteConsumerGroup(group), sarama.ErrNonEmptyGroup))
		living.leave()
		commit(s, group, name, 3)
		s.Must(admin(s).DeleteConsumerGroup(group))
		s.Same(int64(-1), committed(s, group, name))
	})
	telling.Story(t, "delete-offsets", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 1), telling.Unique("group")
		commit(s, group, name, 3)
		s.Must(admin(s).DeleteConsumerGroupOffset(group, name, 0))
		s.Same(int64(-1), committed(s, group, name))
	})
	telling.Story(t, "alter-offsets", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(s, 1), telling.Unique("group")
		for _, offset := range []int64{7, 2} {
			commit(s, group, name, offset)
			s.Same(offset, committed(s, group, name))
		}
	})
}
