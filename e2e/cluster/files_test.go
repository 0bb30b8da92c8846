package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Every kind of file that machines get is one that its reader can read.
func TestFilesAreWellFormed(t *testing.T) {
	for _, families := range []Families{IPv4, IPv6, DualStack} {
		root := t.TempDir()
		o := Options{Families: families, FeatureGates: map[string]bool{"A": true, "B": false}, AuditUser: "system:someone"}
		o.Defaults()
		p := plan{families}
		data := fileData{
			Options: o, Name: "n1", NodeIPs: addrs(p.host(nodeNumber(1))), Pods: texts(p.pods(1)), AllPods: texts(p.allPods()),
			Services: texts(p.services()), DNS: p.dns().String(), Anywhere: texts(p.anywhere()), APIServer: p.apiServer().String(),
			Hosts: []hostEntry{{"10.200.0.11", "n1"}},
		}
		if err := writeFiles(root, data, "every", "control", "node"); err != nil {
			t.Fatal(err)
		}
		read := func(name string) []byte {
			b, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		var anything map[string]any
		if err := json.Unmarshal(read("etc/cni/net.d/10-pods.conflist"), &anything); err != nil {
			t.Errorf("%s: network configuration: %v", families, err)
		}
		for _, name := range []string{"kubelet.yaml", "kube-proxy.yaml"} {
			if err := yaml.UnmarshalStrict(read("etc/kubernetes/"+name), &anything); err != nil {
				t.Errorf("%s: %s: %v", families, name, err)
			}
		}
		if err := yaml.UnmarshalStrict(read("etc/kubernetes/audit.yaml"), &anything); err != nil {
			t.Errorf("%s: audit policy: %v", families, err)
		}
		unit := string(read("etc/systemd/system/kube-apiserver.service"))
		for _, want := range []string{"--feature-gates=A=true,B=false", "--advertise-address=" + p.apiServer().String() + " ",
			" --audit-log-path=" + AuditLog + " --enable-aggregator-routing=true ", "--service-cluster-ip-range=" + strings.Join(texts(p.services()), ",") + " "} {
			if !strings.Contains(unit, want) {
				t.Errorf("%s: unit of the API server has no %q:\n%s", families, want, unit)
			}
		}
		info, err := os.Stat(filepath.Join(root, "usr/local/sbin/host-view"))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("host-view is %v (%v), want a program", info, err)
		}
	}
}
