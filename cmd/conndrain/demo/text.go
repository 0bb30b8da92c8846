package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// text writes what a person reads. The first error sticks and ends all writing.
type text struct {
	w     io.Writer
	color bool
	err   error
}

// newText writes with colours where w leads to a terminal.
func newText(w io.Writer) *text {
	f, ok := w.(*os.File)
	color := ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == ""
	return &text{w: w, color: color}
}

// style is a way to show text on a terminal.
type style string

const (
	plain style = ""
	bold  style = "1"
	dim   style = "2"
	red   style = "31"
	green style = "32"
)

func (t *text) style(s style, v string) string {
	if !t.color || s == plain || v == "" {
		return v
	}
	return "\x1b[" + string(s) + "m" + v + "\x1b[0m"
}

func (t *text) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

// intro says what was built and what goes on in it.
func (t *text) intro(r result, early int) {
	t.printf("\n%s\n\n", t.style(bold, "A pod is deleted while clients still download from it. When may it end?"))
	t.printf("  client %s --- node --- pod %s\n", r.Client, r.Pod.Addr())
	t.printf("  Service %s on the node leads to port %d of the pod\n\n", r.Service, r.Pod.Port())
	for _, row := range [][2]string{
		{fmt.Sprintf("%d downloads", early), fmt.Sprintf("%s to %s, slow and of different lengths; %s will come late", letter(0), letter(early-1), letter(early))},
		{"1 keep-alive", "a client's connection that asks for nothing any more"},
		{"1 scraper", fmt.Sprintf("of metrics, on port %d of the pod", metricsPort)},
		{"1 database", "connection that the pod itself has opened"},
	} {
		t.printf("  %-16s%s\n", row[0], t.style(dim, row[1]))
	}
	t.printf("\n%s\n", t.style(dim, "Real kernel, real TCP and HTTP, every byte checked. All of it lives in network\n"+
		"namespaces of this process: this machine does not change, and nothing stays."))
}

// deleted begins the lines of the wait.
func (t *text) deleted(r result) {
	t.printf("\n%s On the node, this now waits for its last download:\n", t.style(bold, "The pod is deleted."))
	t.printf("  conndrain wait --address %s --port %d --idle-after %s\n\n",
		r.Pod.Addr(), r.Pod.Port(), time.Duration(r.Idle.After))
	t.printf("  %s\n", t.style(dim, "  time   open  idle  new   downloads"))
}

// moment is a line of the wait. running names the downloads that run, with a
// place for each that does not; happened says what did since the last line.
func (t *text) moment(m moment, running, happened string) {
	counts := "   ?     ?    ?"
	if m.Known {
		counts = fmt.Sprintf("%4d  %4d  %3d", m.Open+m.Lost, m.Idle, m.New)
	}
	line := fmt.Sprintf("  %6s   %s   %s    %s", m.After.short(), counts, running, t.style(dim, happened))
	t.printf("%s\n", strings.TrimRight(line, " "))
}

// summary is the comparison, and how the other sessions were treated.
func (t *text) summary(r result) {
	t.printf("\n%s", t.table(r.Table, len(r.Downloads)))
	t.printf("\n%s\n", t.style(dim, "cut: downloads that were still running when the pod ended; wasted: how long it\n"+
		"stayed after the last one. Computed from the ends recorded in this run\n"+
		fmt.Sprintf("(--seed %d): %s.", r.Seed, downloadWords(r))))
	t.printf("\n%s\n\n%s\n\n", idleWords(r.Idle), uncountedWords(r.Uncounted))
}

// table compares the ways to end a pod.
func (t *text) table(outcomes []outcome, downloads int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s\n", t.style(dim, fmt.Sprintf("%-12s %-11s %-9s %s", "", "pod ends", "cut", "wasted")))
	for _, o := range outcomes {
		cut, cutStyle := "none", green
		if o.Cut > 0 {
			cut, cutStyle = fmt.Sprintf("%d of %d", o.Cut, downloads), red
		}
		wasted, wastedStyle := o.Wasted.exact(), green
		if o.Wasted == 0 {
			wasted = "none"
		} else if time.Duration(o.Wasted) >= time.Second {
			wastedStyle = red
		}
		fmt.Fprintf(&b, "  %s %-11s %s %s\n", t.style(bold, fmt.Sprintf("%-12s", o.What)),
			"at "+o.Released.exact(), t.style(cutStyle, fmt.Sprintf("%-9s", cut)), t.style(wastedStyle, wasted))
	}
	return b.String()
}

// downloadWords sums the downloads up.
func downloadWords(r result) string {
	var bytes int64
	for _, d := range r.Downloads {
		bytes += d.Bytes
	}
	checked := "every byte checked"
	if n := r.cut(); n > 0 {
		checked = fmt.Sprintf("%d of them not whole", n)
	}
	return fmt.Sprintf("%d downloads, %.1f MB, %s", len(r.Downloads), float64(bytes)/1e6, checked)
}

// idleWords says how the keep-alive connection was treated, and how it would have
// been without the idle rule.
func idleWords(i idle) string {
	after := time.Duration(i.After)
	switch {
	case i.Sessions == 0:
		return fmt.Sprintf("The keep-alive connection was not idle at the end: less than %s without a packet.", after)
	case i.OpenWithout == 0:
		return fmt.Sprintf("The keep-alive connection had no packet for %s: by --idle-after %s it did\nnot hold the pod.", i.Quiet.exact(), after)
	}
	return fmt.Sprintf("The keep-alive connection had no packet for %s: by --idle-after %s it did\n"+
		"not hold the pod. A second wait, without it, still had %d open session when the\n"+
		"pod ended, and would have gone on until its end or the deadline.", i.Quiet.exact(), after, i.OpenWithout)
}

// uncountedWords says what lived and was never counted.
func uncountedWords(u uncounted) string {
	return fmt.Sprintf("Alive to the end and never counted: the scraper (%d session, not on --port) and\n"+
		"the database (%d, outbound).", u.Metrics, u.Outbound)
}

func letter(i int) string { return string(rune('A' + i)) }

// short is whole seconds where it is near to them, else as exact.
func (s seconds) short() string {
	d := time.Duration(s)
	whole := d.Round(time.Second)
	if whole > 0 && (d-whole).Abs() < 50*time.Millisecond {
		return fmt.Sprintf("%d s", whole/time.Second)
	}
	return s.exact()
}

// exact is tenths of seconds, or milliseconds where there are only few.
func (s seconds) exact() string {
	d := time.Duration(s)
	switch {
	case d < time.Millisecond:
		return "under 1 ms"
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
