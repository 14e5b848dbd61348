// Package telling runs stories as Go tests and prints one line for each: "STORY slug PASS" or "STORY slug FAIL why".
// The slugs are those of tests/clients/stories.py.
package telling

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

const deadline = 30 * time.Second

// Bootstrap is the broker to talk to.
func Bootstrap(t *testing.T) string {
	t.Helper()
	address := os.Getenv("HEADRACE_BOOTSTRAP")
	if address == "" {
		t.Fatal("HEADRACE_BOOTSTRAP=host:port says which broker to talk to")
	}
	return address
}

// Story tells one story; its context ends with the test.
func Story(t *testing.T, slug string, tell func(ctx context.Context, s *Stage)) {
	t.Helper()
	t.Run(slug, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*deadline)
		defer cancel()
		s := &Stage{T: t}
		t.Cleanup(func() {
			if t.Failed() {
				why := strings.ReplaceAll(strings.Join(s.problems, "; "), "\n", " ")
				fmt.Printf("STORY %s FAIL %s\n", slug, why)
			} else {
				fmt.Printf("STORY %s PASS\n", slug)
			}
		})
		tell(ctx, s)
	})
}

// Stage is a test that remembers why it failed.
type Stage struct {
	*testing.T
	problems []string
}

// Fail ends the story.
func (s *Stage) Fail(format string, arguments ...any) {
	s.Helper()
	s.problems = append(s.problems, fmt.Sprintf(format, arguments...))
	s.Fatalf(format, arguments...)
}

// Must ends the story on an error.
func (s *Stage) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fail("error: %v", err)
	}
}

// Same compares what was wanted with what was seen.
func (s *Stage) Same(wanted, seen any) {
	s.Helper()
	if !reflect.DeepEqual(wanted, seen) {
		s.Fail("wanted %v, saw %v", wanted, seen)
	}
}

// Until calls the condition until it holds, for a bounded time.
func (s *Stage) Until(what string, condition func() bool) {
	s.Helper()
	giveUpAt := time.Now().Add(deadline)
	for !condition() {
		if time.Now().After(giveUpAt) {
			s.Fail("%s: not so after %s", what, deadline)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Unique is a name that nobody else uses.
func Unique(kind string) string {
	random := make([]byte, 4)
	_, _ = rand.Read(random)
	return "go." + kind + "." + hex.EncodeToString(random)
}

// Numbers are "0", "1", … up to, not including, count.
func Numbers(count int) []string {
	numbers := make([]string, count)
	for at := range numbers {
		numbers[at] = fmt.Sprint(at)
	}
	return numbers
}
