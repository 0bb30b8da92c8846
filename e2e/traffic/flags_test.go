package traffic

import (
	"flag"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestArgs starts a client by its arguments that differs from a default one in every field.
func TestArgs(t *testing.T) {
	want := Client{
		Protocol: "grpc", Address: "127.0.0.1:1", Transfer: Transfer{Bytes: 2, Duration: 3, Gap: 4 * time.Millisecond},
		Count: 5, Concurrency: 6, Pause: 7, Spread: 8, Stall: 9, Patience: 10 * time.Hour,
	}
	for _, all := range []any{want, want.Transfer} {
		for v, i := reflect.ValueOf(all), 0; i < v.NumField(); i++ {
			if v.Field(i).IsZero() {
				t.Errorf("%s has no value here", v.Type().Field(i).Name)
			}
		}
	}
	var got Client
	fs := flag.NewFlagSet("client", flag.ContinueOnError)
	got.Flags(fs)
	if err := fs.Parse(want.Args()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("client by its arguments (-want +got):\n%s", diff)
	}
}
