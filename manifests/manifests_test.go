// Package manifests only tests what is in this folder.
package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// render is what kustomize makes of a folder.
func render(t *testing.T, dir string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../e2e/tools/kustomize/go.mod", "kustomize", "build", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("render %s: %v\n%s", dir, err, &stderr)
	}
	return out
}

// find decodes the object of a kind into o, and reports whether there is one.
func find(t *testing.T, rendered []byte, kind string, o any) bool {
	t.Helper()
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096); ; {
		var u unstructured.Unstructured
		if err := d.Decode(&u.Object); errors.Is(err, io.EOF) {
			return false
		} else if err != nil {
			t.Fatal(err)
		}
		if u.GetKind() != kind {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, true); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		return true
	}
}

func TestInstallIsWhatTheManifestsRender(t *testing.T) {
	stored, err := os.ReadFile("install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(render(t, ".")), string(stored)); diff != "" {
		t.Errorf("install.yaml is not what the manifests say: run make manifests (-want +got):\n%s", diff)
	}
}

// The rights of the helper are these and no others.
func TestRights(t *testing.T) {
	var role rbacv1.ClusterRole
	if !find(t, render(t, "."), "ClusterRole", &role) {
		t.Fatal("there is no ClusterRole")
	}
	var got []string
	for _, r := range role.Rules {
		for _, resource := range r.Resources {
			got = append(got, fmt.Sprintf("%s %s", resource, strings.Join(r.Verbs, ",")))
		}
		if len(r.NonResourceURLs)+len(r.ResourceNames) > 0 {
			t.Errorf("a rule has more than resources: %+v", r)
		}
	}
	want := []string{
		"pods get,list,watch", "nodes get", "services get", "tokenreviews create", "endpointslices list,watch",
		"events create,patch",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

// A change of the ports in the DaemonSet reaches the program.
func TestPortsStandInOnePlace(t *testing.T) {
	set := helper(t, render(t, "."))
	args := strings.Join(set.Args, " ")
	for _, p := range set.Ports {
		if want := fmt.Sprintf("--%s-port=%d", p.Name, p.ContainerPort); !strings.Contains(args, want) {
			t.Errorf("arguments are %q, want %s", args, want)
		}
	}
	if len(set.Ports) != 2 {
		t.Errorf("ports are %+v, want two", set.Ports)
	}
}

// Each component goes with the base, and its arguments are flags of the program.
func TestComponents(t *testing.T) {
	all, err := filepath.Glob("components/*")
	if err != nil || len(all) == 0 {
		t.Fatalf("components are %q, %v", all, err)
	}
	help, err := exec.CommandContext(t.Context(), "go", "run", "../cmd/conndrain-node", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range append(all, "") {
		t.Run(component, func(t *testing.T) {
			dir := t.TempDir()
			base, err := filepath.Rel(dir, here) // kustomize wants it relative
			if err != nil {
				t.Fatal(err)
			}
			overlay := "resources: [" + base + "]\n"
			if component != "" {
				overlay += "components: [" + filepath.Join(base, component) + "]\n"
			}
			if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
				t.Fatal(err)
			}
			rendered := render(t, dir)
			if component != "" && bytes.Equal(rendered, render(t, ".")) {
				t.Error("changes nothing")
			}
			for _, arg := range helper(t, rendered).Args {
				flag, _, _ := strings.Cut(arg, "=")
				if !bytes.Contains(help, []byte(flag+" ")) && !bytes.Contains(help, []byte(flag+"[")) { // a word, or a choice
					t.Errorf("conndrain-node has no flag %s:\n%s", flag, help)
				}
			}
		})
	}
}

func helper(t *testing.T, rendered []byte) corev1.Container {
	t.Helper()
	var set appsv1.DaemonSet
	if !find(t, rendered, "DaemonSet", &set) {
		t.Fatal("there is no DaemonSet")
	}
	return set.Spec.Template.Spec.Containers[0]
}
