package franz

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"headrace/clients/telling"
)

// newMember joins in the protocol where the broker assigns the partitions (KIP-848).
func newMember(s *telling.Stage, group string, options ...kgo.Opt) *member {
	s.Helper()
	defaults := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	return join(s, group, append(defaults, options...)...)
}

// moves is how many partitions a member was told to give so far.
func (m *member) moves() int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.revoked
}

// leave closes a static member for a while. The client's own goodbye forgets the instance id, which Kafka refuses as well;
// without this second one its place would be free only when its session has timed out.
func leave(ctx context.Context, s *telling.Stage, group, instance string, m *member) {
	s.Helper()
	id, _ := m.GroupMetadata()
	m.CloseAllowingRebalance()
	goodbye := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	goodbye.Group, goodbye.MemberID, goodbye.InstanceID, goodbye.MemberEpoch = group, id, &instance, -2
	answer, err := goodbye.RequestWith(ctx, client(s))
	s.Must(err)
	s.Must(kerr.ErrorForCode(answer.ErrorCode))
}

func TestNewProtocol(t *testing.T) {
	assignors := map[string]kgo.GroupBalancer{"uniform": kgo.StickyBalancer(), "range": kgo.RangeBalancer()}
	for assignor, balancer := range assignors {
		telling.Story(t, "new-protocol", func(ctx context.Context, s *telling.Stage) {
			name, group := topic(ctx, s, 6), telling.Unique("group")
			var members []*member
			for range 3 {
				members = append(members, newMember(s, group, kgo.ConsumeTopics(name), kgo.Balancers(balancer)))
			}
			settle(s, 6, members...)
			described, err := admin(s).DescribeConsumerGroups(ctx, group)
			s.Must(err)
			s.Must(described[group].Err)
			s.Same(assignor, described[group].AssignorName)
			s.Same(3, len(described[group].Members))
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
	}
	telling.Story(t, "new-protocol", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 6), telling.Unique("group")
		stays := newMember(s, group, kgo.ConsumeTopics(name))
		settle(s, 6, stays)
		comes := newMember(s, group, kgo.ConsumeTopics(name))
		settle(s, 6, stays, comes)
		// Only what moves is taken away.
		s.Same(3, stays.moves())
		comes.CloseAllowingRebalance()
		settle(s, 6, stays)
		s.Same(3, stays.moves())
	})
	telling.Story(t, "new-protocol", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 1), telling.Unique("group")
		produce(ctx, s, client(s), name, 0, telling.Numbers(10)...)
		first := newMember(s, group, kgo.ConsumeTopics(name))
		s.Must(first.CommitRecords(ctx, read(ctx, s, first.Client, 4)...))
		first.CloseAllowingRebalance()
		s.Same([]string{"4"}, values(read(ctx, s, newMember(s, group, kgo.ConsumeTopics(name)).Client, 1)))
	})
	telling.Story(t, "new-protocol-static", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 4), telling.Unique("group")
		as := func(instance string) *member {
			return newMember(s, group, kgo.ConsumeTopics(name), kgo.InstanceID(instance))
		}
		stays, restarts := as("stays"), as("restarts")
		before := settle(s, 4, stays, restarts)
		moved := stays.moves()
		leave(ctx, s, group, "restarts", restarts)
		s.Same(before, settle(s, 4, stays, as("restarts")))
		s.Same(moved, stays.moves())
	})
	telling.Story(t, "new-protocol-regex", func(ctx context.Context, s *telling.Stage) {
		prefix, group := telling.Unique("family"), telling.Unique("group")
		consumer := newMember(s, group, kgo.ConsumeRegex(), kgo.ConsumeTopics(prefix+"-.*"))
		named(ctx, s, prefix+"-one", 1)
		settle(s, 1, consumer)
		named(ctx, s, prefix+"-two", 1)
		named(ctx, s, "not-"+prefix, 1)
		settle(s, 2, consumer)
		described, err := admin(s).DescribeConsumerGroups(ctx, group)
		s.Must(err)
		// The broker was given the pattern, as this client writes it, and not the names it stands for.
		s.Same(true, strings.Contains(*described[group].Members[0].SubscribedTopicRegex, prefix+"-.*"))
		produce(ctx, s, client(s), prefix+"-two", 0, "found")
		s.Same([]string{"found"}, values(read(ctx, s, consumer.Client, 1)))
	})
	telling.Story(t, "protocol-move", func(ctx context.Context, s *telling.Stage) {
		name, group := topic(ctx, s, 4), telling.Unique("group")
		old := join(s, group, kgo.ConsumeTopics(name), kgo.Balancers(kgo.CooperativeStickyBalancer()))
		settle(s, 4, old)
		fresh := newMember(s, group, kgo.ConsumeTopics(name))
		settle(s, 4, old, fresh)
		described, err := admin(s).DescribeConsumerGroups(ctx, group)
		s.Must(err)
		s.Same(2, len(described[group].Members))
		fresh.CloseAllowingRebalance()
		settle(s, 4, old)
		back, err := admin(s).DescribeGroups(ctx, group)
		s.Must(err)
		s.Same("cooperative-sticky", back[group].Protocol)
	})
}
