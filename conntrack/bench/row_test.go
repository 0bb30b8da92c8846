//go:build linux

package main

import (
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make(sample, 100)
	for i := range hundred {
		hundred[len(hundred)-1-i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		name string
		s    sample
		p    int
		want time.Duration
	}{
		{"nothing", nil, 50, 0},
		{"one", sample{7}, 99, 7},
		{"best", hundred, 0, 1},
		{"median", hundred, 50, 50},
		{"p99", hundred, 99, 99},
		{"worst", hundred, 100, 100},
		{"median of an odd number", sample{3, 1, 2}, 50, 2},
		{"p99 of 200 leaves out one", append(hundred[:100:100], hundred...), 99, 99},
	} {
		if got := tt.s.percentile(tt.p); got != tt.want {
			t.Errorf("%s: percentile %d is %d, want %d", tt.name, tt.p, got, tt.want)
		}
	}
}

func TestRatioNeedsBestAndMedian(t *testing.T) {
	t.Parallel()
	ms := func(values ...int) (s sample) {
		for _, v := range values {
			s = append(s, time.Duration(v)*time.Millisecond)
		}
		return s
	}
	for _, tt := range []struct {
		name         string
		ours, theirs sample
		reached      string
		verdict      verdict
	}{
		{"both", ms(10, 10, 11), ms(100, 110, 120), "10.0x / 11.0x", ok},
		{"only the best", ms(10, 20, 21), ms(100, 110, 120), "10.0x / 5.5x", missed},
		{"only the median", ms(10, 10, 11), ms(50, 110, 120), "5.0x / 11.0x", missed},
	} {
		r := ratio(tt.name, tt.ours, "theirs", tt.theirs, 9)
		if r.reached != tt.reached || r.verdict != tt.verdict {
			t.Errorf("%s: reached %s, %q, want %s, %q", tt.name, r.reached, r.verdict, tt.reached, tt.verdict)
		}
	}
}

func TestRowsPrint(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	printRows(&b, []row{ratio("snapshot", sample{2 * time.Millisecond}, "conntrack -L", sample{1500 * time.Millisecond}, 9)})
	for _, want := range []string{"snapshot", "2.0 ms / 2.0 ms", "conntrack -L", "1.50 s / 1.50 s", ">= 9x", "750.0x / 750.0x", "ok"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
