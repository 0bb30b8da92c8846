package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAtMostSaysByHowMuch(t *testing.T) {
	for _, test := range []struct {
		row  row
		want string
	}{
		{atMost("size", int64(4e6), int64(8e6), megabytes), "met, 50 % below"},
		{atMost("size", int64(8e6), int64(8e6), megabytes), "met, reached exactly"},
		{atMost("size", int64(9e6), int64(8e6), megabytes), "**not met**, 12 % over"},
		{atMost("time", 600*time.Millisecond, 500*time.Millisecond, span), "**not met**, 20 % over"},
		{atMost("cut", 0, 0, count), "met"},
		{atMost("cut", 3, 0, count), "**not met**, over by 3"},
		{holds("all", "so", "not so", false), "**not met**"},
		{row{What: "fact", Measured: "1"}, ""},
	} {
		if got := test.row.verdict(); got != test.want {
			t.Errorf("%+v: verdict is %q, want %q", test.row, got, test.want)
		}
	}
}

func TestPercentileIsAValueThatWasSeen(t *testing.T) {
	var s sample
	for i := range 100 {
		s = append(s, time.Duration(100-i))
	}
	got := []time.Duration{s.median(), s.percentile(99), s.worst(), sample{7}.percentile(99), sample(nil).median()}
	if diff := cmp.Diff([]time.Duration{50, 99, 100, 7, 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReportIsMarkdown(t *testing.T) {
	met := true
	r := report{
		Facts:  "Machine: one.",
		Rows:   []row{{What: "size", Must: "<= 8 MB", Measured: "4 MB", Met: &met, By: "50 % below"}},
		Tables: []table{{Title: "More:", Header: []string{"a", "b"}, Lines: [][]string{{"1", "2"}}}},
	}
	var out strings.Builder
	if err := r.write(&out, "markdown"); err != nil {
		t.Fatal(err)
	}
	const want = `Machine: one.

| what | must | measured | verdict |
|---|---|---|---|
| size | <= 8 MB | 4 MB | met, 50 % below |

More:

| a | b |
|---|---|
| 1 | 2 |
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOptions(t *testing.T) {
	o := options{quick: true, output: "yaml", only: "hook,nothing", hooks: "sleep 7", burst: 1000, settle: time.Second}
	o.defaults()
	if o.ends >= 100 || o.burst != 1000 {
		t.Errorf("defaults made %+v", o)
	}
	err := o.validate()
	if err == nil {
		t.Fatal("options are valid")
	}
	for _, want := range []string{`output "yaml"`, "burst 1000", `group "nothing"`, `hook "sleep 7"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}
