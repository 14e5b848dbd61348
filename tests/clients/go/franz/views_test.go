package franz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"headrace/clients/telling"
)

// viewOf makes a view, whose counts are left to the broker.
func viewOf(ctx context.Context, s *telling.Stage, base string, view telling.View) (string, error) {
	s.Helper()
	config := map[string]*string{}
	settings := view.Settings(base)
	for at := 0; at < len(settings); at += 2 {
		config[settings[at]] = kadm.StringPtr(settings[at+1])
	}
	name := telling.Unique("view")
	_, err := admin(s).CreateTopic(ctx, -1, -1, config, name)
	return name, err
}

func tagged(topic, value string, tags []string) *kgo.Record {
	var headers []string
	for _, tag := range tags {
		headers = append(headers, "headrace.tag", tag)
	}
	return scheduled(topic, 0, "", value, headers...)
}

func TestViews(t *testing.T) {
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression()} {
		telling.Story(t, "views", func(ctx context.Context, s *telling.Stage) {
			producer := client(s, kgo.ProducerBatchCompression(codec))
			for _, view := range telling.Views {
				base := topic(ctx, s, 1, "headrace.tags.enable", "true")
				var records []*kgo.Record
				for number := range telling.Tagged {
					records = append(records, tagged(base, fmt.Sprint(number), telling.Tags[number%4]))
				}
				s.Must(producer.ProduceSync(ctx, records...).FirstErr())
				name, err := viewOf(ctx, s, base, view)
				s.Must(err)
				group := telling.Unique("group")
				member := client(s, kgo.ConsumerGroup(group), kgo.ConsumeTopics(name), kgo.DisableAutoCommit())
				found := read(ctx, s, member, len(view.Numbers()))
				s.Same(view.Numbers(), values(found))
				for _, record := range found {
					s.Same(string(record.Value), fmt.Sprint(record.Offset))
					s.Same(name, record.Topic)
				}
				s.Same(true, silent(ctx, member))
				// This client commits the offset after the last record that it had.
				send(ctx, s, producer, tagged(base, "last", view.Last))
				s.Same([]string{"last"}, values(read(ctx, s, member, 1)))
				s.Must(member.CommitUncommittedOffsets(ctx))
				s.Same(endOf(ctx, s, base), endOf(ctx, s, name))
				s.Same(endOf(ctx, s, base), committedOffset(ctx, s, group, name))
				err = producer.ProduceSync(ctx, scheduled(name, 0, "", "refused")).FirstErr()
				s.Same(true, errors.Is(err, kerr.InvalidTopicException))
			}
		})
	}
	telling.Story(t, "views", func(ctx context.Context, s *telling.Stage) {
		view, err := viewOf(ctx, s, topic(ctx, s, 1, "headrace.tags.enable", "true"), telling.Views[0])
		s.Must(err)
		for _, base := range []string{view, topic(ctx, s, 1)} {
			_, err := viewOf(ctx, s, base, telling.Views[0])
			s.Same(true, errors.Is(err, kerr.InvalidConfig))
		}
	})
	telling.Story(t, "view-transactions", func(ctx context.Context, s *telling.Stage) {
		base := topic(ctx, s, 1, "headrace.tags.enable", "true")
		view, err := viewOf(ctx, s, base, telling.Views[0])
		s.Must(err)
		producer := client(s, kgo.TransactionalID(telling.Unique("id")))
		for value, end := range map[string]kgo.TransactionEndTry{"kept": kgo.TryCommit, "lost": kgo.TryAbort} {
			s.Must(producer.BeginTransaction())
			for _, tag := range []string{"red", "green", "red"} {
				s.Must(producer.ProduceSync(ctx, tagged(base, value+" "+tag, []string{tag})).FirstErr())
			}
			s.Must(producer.EndTransaction(ctx, end))
		}
		careful := client(s, at(view, kgo.NewOffset().AtStart()), committed)
		s.Same([]string{"kept red", "kept red"}, values(read(ctx, s, careful, 2)))
		s.Same(true, silent(ctx, careful))
		hasty := values(read(ctx, s, client(s, at(view, kgo.NewOffset().AtStart())), 4))
		s.Same(2, strings.Count(strings.Join(hasty, ","), "lost red"))
	})
}
