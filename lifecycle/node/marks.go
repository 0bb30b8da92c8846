package node

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"
)

// marks are moments of this helper's life, as it writes them into answers and gets
// them back.
var marks = clock{name: rand.Text()[:8], start: time.Now()}

// clock turns moments into text and back. Those of another helper, such as the one
// before a restart, mean nothing to it.
type clock struct {
	name  string
	start time.Time
}

// mark names a moment.
func (c clock) mark(now time.Time) string {
	return c.name + "-" + strconv.FormatInt(int64(now.Sub(c.start)), 36)
}

// moment is what a mark names, if it is one of this clock and not of the future.
func (c clock) moment(mark string, now time.Time) (time.Time, bool) {
	name, text, _ := strings.Cut(mark, "-")
	after, err := strconv.ParseInt(text, 36, 64)
	if err != nil || name != c.name || after < 0 || after > int64(now.Sub(c.start)) {
		return time.Time{}, false
	}
	return c.start.Add(time.Duration(after)), true
}
