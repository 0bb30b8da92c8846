package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack"
)

func TestChangesText(t *testing.T) {
	all := shown()
	tcp, masked, udp := all[0], all[1], all[2]
	closing := tcp
	closing.Kernel, closing.ClosedFirst = "FIN_WAIT", conntrack.ClientSide
	known := conntrack.Counts{Known: true, Open: 1}

	var out strings.Builder
	v := &changeView{doing: new(observer).now, w: &out, write: writeChangeText}
	for _, look := range []struct {
		sessions []conntrack.Session
		counts   conntrack.Counts
		fault    error
	}{
		{nil, conntrack.Counts{}, nil}, // not known yet
		{[]conntrack.Session{tcp}, known, nil},
		{[]conntrack.Session{tcp}, known, nil},
		{[]conntrack.Session{tcp, masked, udp}, known, nil},
		{nil, conntrack.Counts{}, nil}, // nothing has ended: it is unknown
		{[]conntrack.Session{closing, masked}, known, nil},
		{nil, known, nil},
		{nil, conntrack.Counts{}, errors.New("no buffer space")},
	} {
		if err := v.show(look.sessions, look.counts, look.fault); err != nil {
			t.Fatal(err)
		}
	}
	want := `* 1 open, 0 idle, 0 lost
= tcp 10.0.0.9:4000 to 10.96.0.10:80 at 10.244.1.7:8080, open (ESTABLISHED)
+ tcp 203.0.113.200:51234 to 10.244.1.7:8080 at 10.244.1.7:8080, lost (CLOSE_WAIT)
+ udp [fd00::9]:4000 to [fd00::7]:53 at [fd00::7]:53, open
? unknown: the kernel's table is read again
* 1 open, 0 idle, 0 lost
~ tcp 10.0.0.9:4000 to 10.96.0.10:80 at 10.244.1.7:8080, open (FIN_WAIT)
- udp [fd00::9]:4000 to [fd00::7]:53 at [fd00::7]:53, over
- tcp 10.0.0.9:4000 to 10.96.0.10:80 at 10.244.1.7:8080, over (FIN_WAIT)
- tcp 203.0.113.200:51234 to 10.244.1.7:8080 at 10.244.1.7:8080, over (CLOSE_WAIT)
? unknown: no buffer space
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
