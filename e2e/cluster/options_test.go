package cluster

import (
	"strings"
	"testing"
	"time"
)

func TestZeroOptionsAreValid(t *testing.T) {
	var o Options
	o.Defaults()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if o.Nodes != 1 || o.ProxyMode != "nftables" || o.Families != IPv4 {
		t.Errorf("defaults are %+v", o)
	}
	other := Options{}
	other.Defaults()
	if o.Name == other.Name {
		t.Errorf("two clusters have the name %q", o.Name)
	}
}

func TestValidateNamesEveryMistake(t *testing.T) {
	o := Options{
		Name: "../etc", Nodes: 201, ProxyMode: "ipvs", Families: "IPv5",
		ShutdownGracePeriod: time.Second, ShutdownGracePeriodCriticalPods: 2 * time.Second,
		NodeMonitorGracePeriod: time.Second,
	}
	err := o.Validate()
	if err == nil {
		t.Fatal("options are valid")
	}
	for _, want := range []string{`cluster name "../etc"`, "201 nodes", `mode "ipvs"`, `families "IPv5"`,
		"critical pods (2s)", "monitor grace period 1s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}

func TestRemoveTakesNoPath(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../tmp", "nobody-has-this-name"} {
		if err := Remove(name); err == nil || !strings.Contains(err.Error(), "none of that name") {
			t.Errorf("remove %q: %v", name, err)
		}
	}
}
