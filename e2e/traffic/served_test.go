package traffic

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestServerTellsWhatItServed(t *testing.T) {
	s := listen(t)
	if got := s.Served(); got != (Served{}) {
		t.Errorf("nothing was asked for, and it tells %+v", got)
	}
	before := time.Now()
	run(t, Client{Protocol: "http", Address: addressOf(s.Ports, "http"), Count: 3, Transfer: Transfer{Bytes: 10, Duration: time.Millisecond}})
	// the last handler may return after its client has all
	for deadline := time.Now().Add(limit); s.Served().Open > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("it tells %+v", s.Served())
		}
		<-time.After(time.Millisecond)
	}
	got := s.Served()
	if got.Began.Before(before) || got.Ended.Before(got.Began) {
		t.Errorf("began %s, ended %s", got.Began, got.Ended)
	}
}

func TestSpreadMakesTransfersLonger(t *testing.T) {
	s := listen(t)
	const spread = 400 * time.Millisecond
	longest := time.Duration(0)
	for range 8 {
		begin := time.Now()
		run(t, Client{Protocol: "http", Address: addressOf(s.Ports, "http"), Count: 1, Transfer: Transfer{Bytes: 100}, Spread: spread})
		longest = max(longest, time.Since(begin))
	}
	// all eight are below an eighth of it once in sixteen million runs
	if longest < spread/8 {
		t.Errorf("the longest of all transfers took %s", longest)
	}
}

func TestTermination(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	want := Termination{At: time.Unix(1, 234567891).UTC(), Served: Served{Open: 2}}
	if err := want.write(name); err != nil {
		t.Errorf("nobody reads it: %v", err)
	}
	if err := os.WriteFile(name, []byte("a message before, which is longer than the one that comes now, and is not to be seen any more in it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := want.write(name); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var got Termination
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%q: %v", b, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}
