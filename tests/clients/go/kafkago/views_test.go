package kafkago

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go"

	"headrace/clients/telling"
)

// viewOf makes a view, whose counts are left to the broker.
func viewOf(ctx context.Context, s *telling.Stage, base string, view telling.View) (string, error) {
	s.Helper()
	name, settings := telling.Unique("view"), view.Settings(base)
	config := kafka.TopicConfig{Topic: name, NumPartitions: -1, ReplicationFactor: -1}
	for at := 0; at < len(settings); at += 2 {
		entry := kafka.ConfigEntry{ConfigName: settings[at], ConfigValue: settings[at+1]}
		config.ConfigEntries = append(config.ConfigEntries, entry)
	}
	answer, err := client(s).CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{config}})
	s.Must(err)
	return name, answer.Errors[name]
}

func tagged(value string, tags []string) kafka.Message {
	var headers []string
	for _, tag := range tags {
		headers = append(headers, "headrace.tag", tag)
	}
	return scheduled("", value, headers...)
}

func TestViews(t *testing.T) {
	for _, codec := range []kafka.Compression{0, kafka.Lz4} {
		telling.Story(t, "views", func(ctx context.Context, s *telling.Stage) {
			for _, view := range telling.Views {
				base := topic(ctx, s, 1, "headrace.tags.enable", "true")
				var sent []kafka.Message
				for number := range telling.Tagged {
					sent = append(sent, tagged(fmt.Sprint(number), telling.Tags[number%4]))
				}
				s.Must(writer(s, base, func(w *kafka.Writer) { w.Compression = codec }).WriteMessages(ctx, sent...))
				name, err := viewOf(ctx, s, base, view)
				s.Must(err)
				r := reader(s, name, 0)
				found := readOwn(ctx, s, r, len(view.Numbers()))
				s.Same(view.Numbers(), values(found))
				for _, message := range found {
					s.Same(string(message.Value), fmt.Sprint(message.Offset))
					s.Same(name, message.Topic)
				}
				// Groups of this client commit the offset after the last message that they had.
				send(ctx, s, base, tagged("last", view.Last))
				s.Same([]string{"last"}, values(readOwn(ctx, s, r, 1)))
				s.Same(endOf(ctx, s, base), endOf(ctx, s, name))
				s.Same(append(view.Numbers(), "last"), readByGroup(ctx, s, name, len(view.Numbers())+1))
				_, err = sendAt(ctx, s, name, scheduled("", "refused"))
				s.Same(true, errors.Is(err, kafka.InvalidTopic))
			}
		})
	}
	telling.Story(t, "views", func(ctx context.Context, s *telling.Stage) {
		view, err := viewOf(ctx, s, topic(ctx, s, 1, "headrace.tags.enable", "true"), telling.Views[0])
		s.Must(err)
		for _, base := range []string{view, topic(ctx, s, 1)} {
			_, err := viewOf(ctx, s, base, telling.Views[0])
			s.Same(true, errors.Is(err, kafka.InvalidConfiguration))
		}
	})
}
