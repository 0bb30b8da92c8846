package main

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/conndrain/conndrain/lifecycle/node"
)

func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		name, args, ips string
		want            node.Config
		err             string
	}{
		{"a node", "", "10.0.0.1,fd00::1", node.Config{
			Node: "n1", APIPort: 10940, MetricsPort: 10941, SystemBus: node.DefaultSystemBus,
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		}, ""},
		{"ports", "--api-port 1 --metrics-port 2", "10.0.0.1", node.Config{
			Node: "n1", APIPort: 1, MetricsPort: 2, SystemBus: node.DefaultSystemBus, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		}, ""},
		{"no address", "", "", node.Config{Node: "n1", APIPort: 10940, MetricsPort: 10941, SystemBus: node.DefaultSystemBus}, "HOST_IPS"},
		{"not an address", "", "node1", node.Config{Node: "n1", APIPort: 10940, MetricsPort: 10941, SystemBus: node.DefaultSystemBus}, "HOST_IPS"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f flags
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.add(fs)
			if err := fs.Parse(strings.Fields(tc.args)); err != nil {
				t.Fatal(err)
			}
			c, err := f.config(func(name string) string {
				return map[string]string{"NODE_NAME": "n1", "HOST_IPS": tc.ips}[name]
			})
			if err == nil {
				err = c.Validate()
			}
			if diff := cmp.Diff(tc.want, c, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want one that says %q", err, tc.err)
			}
		})
	}
}

func TestDisable(t *testing.T) {
	for text, want := range map[string]bool{"": false, "false": false, "0": false, "true": true, "1": true} {
		c, err := new(flags).config(func(name string) string {
			return map[string]string{"CONNDRAIN_DISABLE": text}[name]
		})
		if err != nil || c.Disabled != want {
			t.Errorf("CONNDRAIN_DISABLE=%s: %v, %v", text, c.Disabled, err)
		}
	}
	_, err := new(flags).config(func(string) string { return "maybe" })
	if err == nil || !strings.Contains(err.Error(), "CONNDRAIN_DISABLE=maybe") {
		t.Errorf("CONNDRAIN_DISABLE=maybe: %v", err)
	}
}
