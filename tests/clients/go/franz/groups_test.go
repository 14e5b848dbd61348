package franz

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/clients/telling"
)

func TestCommit(t *testing.T) {
	telling.Story(t, "commit", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 1), telling.Unique("group")
		produce(ctx, s, client(s), name, 0, telling.Numbers(10)...)
		first := join(s, group, kgo.ConsumeTopics(name))
		s.Must(first.CommitRecords(ctx, read(ctx, s, first.Client, 4)...))
		first.CloseAllowingRebalance()
		s.Same([]string{"4"}, values(read(ctx, s, join(s, group, kgo.ConsumeTopics(name)).Client, 1)))
		fetched, err := admin(s).FetchOffsets(ctx, group)
		s.Must(err)
		committed, _ := fetched.Lookup(name, 0)
		s.Same(int64(4), committed.At)
	})
}

func TestGroups(t *testing.T) {
	telling.Story(t, "group-split", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 6), telling.Unique("group")
		var members []*member
		for range 3 {
			members = append(members, join(s, group, kgo.ConsumeTopics(name)))
		}
		settle(s, 6, members...)
		for number := range 60 {
			produce(ctx, s, client(s), name, int32(number%6), fmt.Sprint(number))
		}
		seen := map[string]int{}
		s.Until("60 messages reach the group", func() bool {
			for _, m := range members {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				for _, value := range values(m.PollFetches(short).Records()) {
					seen[value]++
				}
				cancel()
			}
			return len(seen) == 60
		})
		for _, times := range seen {
			s.Same(1, times)
		}
	})
	telling.Story(t, "group-leave", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 4), telling.Unique("group")
		stays, leaves := join(s, group, kgo.ConsumeTopics(name)), join(s, group, kgo.ConsumeTopics(name))
		settle(s, 4, stays, leaves)
		leaves.CloseAllowingRebalance()
		settle(s, 4, stays)
		settle(s, 4, stays, join(s, group, kgo.ConsumeTopics(name)))
	})
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}
	for slug, balancer := range balancers {
		telling.Story(t, slug, func(ctx context.Context, s *telling.Stage) {
			one, two, group := topic(ctx, s, 2), topic(ctx, s, 2), telling.Unique("group")
			stays := join(s, group, kgo.ConsumeTopics(one, two), kgo.Balancers(balancer))
			settle(s, 4, stays)
			comes := join(s, group, kgo.ConsumeTopics(one, two), kgo.Balancers(balancer))
			settle(s, 4, stays, comes)
			comes.CloseAllowingRebalance()
			settle(s, 4, stays)
		})
	}
}

func TestStaticMember(t *testing.T) {
	telling.Story(t, "static-member", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 4), telling.Unique("group")
		as := func(instance string) *member {
			return join(s, group, kgo.ConsumeTopics(name), kgo.InstanceID(instance), kgo.SessionTimeout(20*time.Second))
		}
		stays := as("stays")
		settle(s, 4, stays)
		// Second to join, so that it says nothing of partitions it had; else its restart would be a reason to rebalance.
		restarts := as("restarts")
		before := settle(s, 4, stays, restarts)
		revoked := stays.revoked
		_, generation := stays.GroupMetadata()
		restarts.CloseAllowingRebalance()
		again := as("restarts")
		s.Same(before, settle(s, 4, stays, again))
		s.Same(revoked, stays.revoked)
		_, after := again.GroupMetadata()
		s.Same(generation, after)
	})
}

func TestSubscriptions(t *testing.T) {
	telling.Story(t, "regex", func(ctx context.Context, s *telling.Stage) {
		prefix := telling.Unique("family")
		consumer := join(s, telling.Unique("group"), kgo.ConsumeRegex(), kgo.ConsumeTopics("^"+regexp.QuoteMeta(prefix)+"-.*"))
		named(ctx, s, prefix+"-one", 1)
		settle(s, 1, consumer)
		named(ctx, s, prefix+"-two", 1)
		named(ctx, s, "not-"+prefix, 1)
		settle(s, 2, consumer)
		produce(ctx, s, client(s), prefix+"-two", 0, "found")
		s.Same([]string{"found"}, values(read(ctx, s, consumer.Client, 1)))
	})
	telling.Story(t, "partition-growth", func(ctx context.Context, s *telling.Stage) {
		name := topic(ctx, s, 1)
		consumer := join(s, telling.Unique("group"), kgo.ConsumeTopics(name))
		settle(s, 1, consumer)
		grown, err := admin(s).UpdatePartitions(ctx, 3, name)
		s.Must(err)
		s.Must(grown.Error())
		settle(s, 3, consumer)
	})
}

func TestGroupAdministration(t *testing.T) {
	commit := func(ctx context.Context, s *telling.Stage, group, name string, partition int32, offset int64) error {
		offsets := kadm.Offsets{}
		offsets.AddOffset(name, partition, offset, -1)
		return admin(s).CommitAllOffsets(ctx, group, offsets)
	}
	telling.Story(t, "describe-groups", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 1), telling.Unique("group")
		m := join(s, group, kgo.ConsumeTopics(name), kgo.ClientID("who"), kgo.Balancers(kgo.RangeBalancer()))
		settle(s, 1, m)
		listed, err := admin(s).ListGroups(ctx)
		s.Must(err)
		s.Same("consumer", listed[group].ProtocolType)
		described, err := admin(s).DescribeGroups(ctx, group)
		s.Must(err)
		s.Same("Stable", described[group].State)
		s.Same("range", described[group].Protocol)
		s.Same("who", described[group].Members[0].ClientID)
		lags, err := admin(s).Lag(ctx, group)
		s.Must(err)
		s.Same(int64(0), lags[group].Lag.Total())
	})
	telling.Story(t, "delete-group", func(ctx context.Context, s *telling.Stage) {
		name, empty, busy := topic(ctx, s, 1), telling.Unique("empty"), telling.Unique("busy")
		s.Must(commit(ctx, s, empty, name, 0, 3))
		settle(s, 1, join(s, busy, kgo.ConsumeTopics(name)))
		deleted, err := admin(s).DeleteGroups(ctx, empty, busy, "no.such.group")
		s.Must(err)
		s.Must(deleted[empty].Err)
		s.Same(kerr.NonEmptyGroup, deleted[busy].Err)
		s.Same(kerr.GroupIDNotFound, deleted["no.such.group"].Err)
	})
	telling.Story(t, "delete-offsets", func(ctx context.Context, s *telling.Stage) {
		name, group, busy := topic(ctx, s, 2), telling.Unique("group"), telling.Unique("busy")
		s.Must(commit(ctx, s, group, name, 0, 3))
		s.Must(commit(ctx, s, group, name, 1, 4))
		zero := kadm.TopicsSet{}
		zero.Add(name, 0)
		deleted, err := admin(s).DeleteOffsets(ctx, group, zero)
		s.Must(err)
		s.Must(deleted.Error())
		left, err := admin(s).FetchOffsets(ctx, group)
		s.Must(err)
		_, there := left.Lookup(name, 0)
		s.Same(false, there)
		settle(s, 2, join(s, busy, kgo.ConsumeTopics(name)))
		refused, err := admin(s).DeleteOffsets(ctx, busy, zero)
		s.Must(err)
		s.Same(kerr.GroupSubscribedToTopic, refused.Error())
	})
	telling.Story(t, "alter-offsets", func(ctx context.Context, s *telling.Stage) {
		name, group, busy := topic(ctx, s, 1), telling.Unique("group"), telling.Unique("busy")
		for _, offset := range []int64{7, 2} {
			s.Must(commit(ctx, s, group, name, 0, offset))
			fetched, err := admin(s).FetchOffsets(ctx, group)
			s.Must(err)
			committed, _ := fetched.Lookup(name, 0)
			s.Same(offset, committed.At)
		}
		settle(s, 1, join(s, busy, kgo.ConsumeTopics(name)))
		s.Same(kerr.UnknownMemberID, commit(ctx, s, busy, name, 0, 7))
	})
}
