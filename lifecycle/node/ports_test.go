package node

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestServedPorts(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "migrate", Ports: []corev1.ContainerPort{{ContainerPort: 1}}},
			{Name: "proxy", RestartPolicy: &always, Ports: []corev1.ContainerPort{{ContainerPort: 15001}}},
		},
		Containers: []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090},
		}}},
	}}
	for _, tc := range []struct {
		name   string
		listed []port
		pod    *corev1.Pod
		want   []uint16
	}{
		{"a slice's", []port{{name: "http", number: 80}, {name: "grpc", number: 90}}, pod, []uint16{80, 90}},
		{"the same twice", []port{{name: "http", number: 80}, {name: "web", number: 80}}, pod, []uint16{80}},
		{"declared", nil, pod, []uint16{8080, 15001}},
		{"every", nil, &corev1.Pod{}, nil},
		{"P3: metrics beside another", []port{{name: "http", number: 80}, {name: "metrics", number: 90}}, pod, []uint16{80}},
		{"P3: metrics alone", []port{{name: "metrics", number: 90}}, pod, []uint16{90}},
		{"P3: http-metrics", []port{{name: "http-metrics", number: 3100}}, pod, []uint16{3100}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, served(tc.listed, tc.pod)); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProbedPorts(t *testing.T) {
	probe := func(h corev1.ProbeHandler) *corev1.Probe { return &corev1.Probe{ProbeHandler: h} }
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{
			Ports:          []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}},
			ReadinessProbe: probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("web")}}),
			LivenessProbe:  probe(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}),
			StartupProbe:   probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{}}),
		},
		{
			ReadinessProbe: probe(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9090}}),
			LivenessProbe:  probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("nowhere")}}),
		},
	}}}
	if diff := cmp.Diff([]uint16{8080, 9090}, probed(pod)); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// A port that is the Service's, or mistyped, is told of where the pod declares its own, as
// soon as it is known that no slice lists it.
func TestUndeclaredPorts(t *testing.T) {
	t.Parallel()
	const (
		advice  = ": use the container's port, not the Service's, or declare it"
		service = `conndrain.io/ports: "80" names port 80, which no container of the pod declares (7000, 8080)` + advice
		policy  = `conndrain.io/until: "8081=requests,8080=sessions" names port 8081, which no container of the pod declares (8080)` + advice
	)
	known := route{known: true}
	for _, tc := range []struct {
		name        string
		declared    []int32
		listed      []port
		annotations map[string]string
		route       route
		looks       time.Duration // for so long
		want        []string
	}{
		{"the Service's", []int32{8080, 7000}, nil, map[string]string{"conndrain.io/ports": "80"}, known, 0, []string{service}},
		{"the Service's beside its slice", []int32{8080, 7000}, []port{{name: "http", number: 8080}}, map[string]string{"conndrain.io/ports": "80"}, known, 0, []string{service}},
		{"no slice is known yet", []int32{8080, 7000}, nil, map[string]string{"conndrain.io/ports": "80"}, route{}, routesPatience - 1, nil},
		{"no slice is known for long", []int32{8080, 7000}, nil, map[string]string{"conndrain.io/ports": "80"}, route{}, routesPatience, []string{service}},
		{"a policy's", []int32{8080}, nil, map[string]string{"conndrain.io/until": "8081=requests,8080=sessions"}, known, 0, []string{policy}},
		{"its own", []int32{8080}, nil, map[string]string{"conndrain.io/ports": "8080", "conndrain.io/until": "8080=requests"}, known, 0, nil},
		{"a slice's, and only that for metrics is declared", []int32{9090}, []port{{name: "http", number: 8080}},
			map[string]string{"conndrain.io/ports": "8080", "conndrain.io/until": "8080=requests"}, known, 0, nil},
		{"none declared", nil, nil, map[string]string{"conndrain.io/ports": "80"}, known, 0, nil},
	} {
		pod := podWithGrace(30, 30)
		pod.Annotations = tc.annotations
		pod.Spec.Containers = []corev1.Container{{Name: "server"}}
		for _, n := range tc.declared {
			pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: n})
		}
		now := time.Now()
		d := newDrain(pod, now, false, Config{Logger: slog.New(slog.DiscardHandler)})
		v := &vigil{drain: d, begun: now, route: tc.route, listed: tc.listed}
		v.tellUndeclared(now.Add(tc.looks))
		v.tellUndeclared(now.Add(tc.looks)) // is told of once
		var got []string
		for _, m := range d.toTell() {
			got = append(got, m.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
