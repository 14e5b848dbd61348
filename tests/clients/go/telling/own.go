package telling

import (
	"strconv"
	"time"
)

// What the suites share of the stories that only headrace tells: delayed records and views.

const Hour = "3600000"

// LeapDays is a schedule that is not due while a test runs.
const LeapDays = "30 4 29 2 *"

// RefusedDelays are headers that are no wish for a delay: each is refused, and nothing of it is stored.
var RefusedDelays = [][2]string{
	{"headrace.delay-ms", "soon"}, {"headrace.delay-ms", "-1"}, {"headrace.delay-ms", "NaN"},
	{"headrace.delay-ms", "99999999999999999999"}, {"headrace.deliver-at", "2030-01-01T00:00:00"}, {"headrace.cron", "0 0 30 2 *"},
}

// clocksMs is by how much the broker's time may differ from ours: it follows no steps of the wall clock while it leads.
const clocksMs = 100

// NowMs is our time.
func NowMs() int64 {
	return time.Now().UnixMilli()
}

// DueInTime judges a record that came just now: it is that which was scheduled under this id, due in this range, and it
// comes when it is due. A header that is missing is "".
func (s *Stage) DueInTime(header func(name string) string, id, earliestMs, latestMs int64) {
	s.Helper()
	came := NowMs()
	due, err := strconv.ParseInt(header("headrace.scheduled.for"), 10, 64)
	s.Must(err)
	s.Same(strconv.FormatInt(id, 10), header("headrace.scheduled.id"))
	if due < earliestMs-clocksMs || due > latestMs+clocksMs {
		s.Fail("due at %d, not in %d to %d", due, earliestMs, latestMs)
	}
	if came+clocksMs < due {
		s.Fail("due at %d, but it was there at %d", due, came)
	}
	for _, name := range []string{"headrace.delay-ms", "headrace.deliver-at", "headrace.cron", "headrace.cron-tz"} {
		s.Same("", header(name))
	}
}

// Tagged is how many records the base of views has, and Tags are theirs, by turns.
const Tagged = 40

var Tags = [][]string{{"red"}, {"green"}, {"green", "red"}, {}}

// View is one of the views that a client is asked to make of the base.
type View struct {
	Tags, Match string
	// Last are the tags of a record that is in the view.
	Last []string
	has  [4]bool
}

var Views = []View{
	{"red", "any", []string{"red"}, [4]bool{true, false, true, false}},
	{"red,green", "all", []string{"red", "green"}, [4]bool{false, false, true, false}},
	{"red", "none", nil, [4]bool{false, true, false, true}},
}

// Numbers are those of the records in the view, which are their offsets and values.
func (v View) Numbers() []string {
	var numbers []string
	for number := range Tagged {
		if v.has[number%4] {
			numbers = append(numbers, strconv.Itoa(number))
		}
	}
	return numbers
}

// Settings make a topic this view of the base, as name, value, name, value.
func (v View) Settings(base string) []string {
	return []string{"headrace.view.of", base, "headrace.view.tags", v.Tags, "headrace.view.match", v.Match}
}
