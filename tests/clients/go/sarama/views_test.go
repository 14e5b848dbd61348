package sarama

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/IBM/sarama"

	"headrace/clients/telling"
)

// viewOf makes a view, whose counts are left to the broker.
func viewOf(s *telling.Stage, base string, view telling.View) (string, error) {
	s.Helper()
	name, wanted := telling.Unique("view"), detail(-1, view.Settings(base)...)
	wanted.ReplicationFactor = -1
	return name, admin(s).CreateTopic(name, wanted, false)
}

func tagged(topic, value string, tags []string) *sarama.ProducerMessage {
	var headers []string
	for _, tag := range tags {
		headers = append(headers, "headrace.tag", tag)
	}
	return scheduled(topic, 0, "", value, headers...)
}

func TestViews(t *testing.T) {
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionLZ4} {
		telling.Story(t, "views", func(ctx context.Context, s *telling.Stage) {
			p := chosen(s, func(c *sarama.Config) { c.Producer.Compression = codec })
			for _, view := range telling.Views {
				base := topic(s, 1, "headrace.tags.enable", "true")
				var sent []*sarama.ProducerMessage
				for number := range telling.Tagged {
					sent = append(sent, tagged(base, fmt.Sprint(number), telling.Tags[number%4]))
				}
				s.Must(p.SendMessages(sent))
				name, err := viewOf(s, base, view)
				s.Must(err)
				reader := partition(s, name, 0, sarama.OffsetOldest, nil)
				found := read(ctx, s, reader, len(view.Numbers()))
				s.Same(view.Numbers(), values(found))
				for _, message := range found {
					s.Same(string(message.Value), fmt.Sprint(message.Offset))
					s.Same(name, message.Topic)
				}
				// Groups of this client commit the offset after the last message that they had.
				send(s, p, tagged(base, "last", view.Last))
				s.Same([]string{"last"}, values(read(ctx, s, reader, 1)))
				s.Same(endOf(s, base), endOf(s, name))
				readByGroup(s, name, len(view.Numbers())+1)
				_, _, err = p.SendMessage(scheduled(name, 0, "", "refused"))
				s.Same(true, errors.Is(err, sarama.ErrInvalidTopic))
			}
		})
	}
	telling.Story(t, "views", func(ctx context.Context, s *telling.Stage) {
		view, err := viewOf(s, topic(s, 1, "headrace.tags.enable", "true"), telling.Views[0])
		s.Must(err)
		for _, base := range []string{view, topic(s, 1)} {
			_, err := viewOf(s, base, telling.Views[0])
			s.Same(true, errors.Is(err, sarama.ErrInvalidConfig))
		}
	})
	telling.Story(t, "view-transactions", func(ctx context.Context, s *telling.Stage) {
		base := topic(s, 1, "headrace.tags.enable", "true")
		view, err := viewOf(s, base, telling.Views[0])
		s.Must(err)
		p := chosen(s, transactional(telling.Unique("id")))
		for _, value := range []string{"kept", "lost", "kept"} {
			s.Must(p.BeginTxn())
			for _, tag := range []string{"red", "green", "red"} {
				send(s, p, tagged(base, value+" "+tag, []string{tag}))
			}
			if value == "kept" {
				s.Must(p.CommitTxn())
			} else {
				s.Must(p.AbortTxn())
			}
		}
		careful := partition(s, view, 0, sarama.OffsetOldest, onlyCommitted)
		s.Same([]string{"kept red", "kept red", "kept red", "kept red"}, values(read(ctx, s, careful, 4)))
		hasty := []string{"kept red", "kept red", "lost red", "lost red", "kept red", "kept red"}
		s.Same(hasty, values(all(ctx, s, view, 6)))
	})
}
