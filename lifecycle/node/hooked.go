package node

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Our hooks by name: the program, alone or inside of a shell's line, or the path
// that its sidecar serves.
const (
	hookProgram = "prestop"
	hookPath    = "/drain"
)

// What trim keeps of a container's preStop: that it is ours, or another's.
var (
	ourHook = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: hookPath},
	}}
	otherHook = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}
)

// hooked says whether the container has a preStop of ours.
func hooked(c *corev1.Container) bool {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return false
	}
	switch p := c.Lifecycle.PreStop; {
	case p.Exec != nil:
		return slices.ContainsFunc(p.Exec.Command, runsHook)
	case p.HTTPGet != nil:
		return strings.TrimSuffix(p.HTTPGet.Path, "/") == hookPath
	}
	return false
}

// HasHook says whether a container of the pod has a preStop hook of conndrain, as far
// as it can be known by its looks.
func HasHook(pod *corev1.Pod) bool {
	ours := func(c corev1.Container) bool { return hooked(&c) }
	return slices.ContainsFunc(pod.Spec.Containers, ours) || slices.ContainsFunc(pod.Spec.InitContainers, ours)
}

// runsHook says whether a word of a command, or of a shell's line in one, names our
// program. A script that runs it under another name is not seen through.
func runsHook(argument string) bool {
	words := strings.FieldsFunc(argument, func(r rune) bool { return strings.ContainsRune(" \t\n;&|()\"'`", r) })
	return slices.ContainsFunc(words, func(w string) bool { return path.Base(w) == hookProgram })
}

// unhooked names the containers that get SIGTERM at once when the pod is deleted,
// because no preStop of ours holds them. Native sidecars are none of them: the
// kubelet ends those after the others, with a hook or without (kuberuntime's
// termination order). A pod in which no hook of ours is recognised has called all
// the same, through a script: then only containers without any preStop are sure.
func unhooked(pod *corev1.Pod) []string {
	recognised := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return hooked(&c) })
	var names []string
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		none := c.Lifecycle == nil || c.Lifecycle.PreStop == nil
		if none || (recognised && !hooked(c)) {
			names = append(names, c.Name)
		}
	}
	return names
}

// trimLifecycle leaves whether there is a preStop, and whether it is ours.
func trimLifecycle(c *corev1.Container) *corev1.Lifecycle {
	switch {
	case hooked(c):
		return ourHook
	case c.Lifecycle != nil && c.Lifecycle.PreStop != nil:
		return otherHook
	}
	return nil
}
