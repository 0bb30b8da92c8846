package demo

import (
	"bytes"
	"io"
	"reflect"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	for seed := range uint64(500) {
		plan := newPlan(seed)
		if len(plan) != 8 {
			t.Fatalf("seed %d: %d downloads", seed, len(plan))
		}
		var last time.Duration
		late := 0
		for _, p := range plan {
			end := p.begin + p.length
			last = max(last, end)
			if p.late() {
				late++
			} else if p.begin != -warmUp {
				t.Errorf("seed %d: %s begins at %s", seed, p.name, p.begin)
			}
			if end < time.Second {
				t.Errorf("seed %d: %s ends at %s", seed, p.name, end)
			}
		}
		if late != 1 || !plan[len(plan)-1].late() {
			t.Errorf("seed %d: %d downloads come late", seed, late)
		}
		// With warm-up and building this stays below 20 s.
		if last < 13*time.Second || last > 17*time.Second {
			t.Errorf("seed %d: the last download ends at %s", seed, last)
		}
	}
	if !reflect.DeepEqual(newPlan(5), newPlan(5)) {
		t.Error("one seed gives two plans")
	}
}

func TestContent(t *testing.T) {
	read := func(p planned) []byte {
		b, err := io.ReadAll(p.content())
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(b)) != p.size {
			t.Errorf("%d bytes, want %d", len(b), p.size)
		}
		return b
	}
	a := planned{name: "A", seed: 1, size: 12345}
	b := a
	b.name = "B"
	if !bytes.Equal(read(a), read(a)) {
		t.Error("one download has two contents")
	}
	if bytes.Equal(read(a), read(b)) {
		t.Error("two downloads have one content")
	}
}
