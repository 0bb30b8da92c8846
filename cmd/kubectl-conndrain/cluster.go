package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// cluster is what the caller's kubeconfig leads to.
type cluster struct {
	client kubernetes.Interface
	run    runner
	// namespace is the one that the flags or the context name, user the name of the
	// kubeconfig's user.
	namespace, user string
}

func (p *plugin) connectByKubeconfig() (*cluster, error) {
	loader := p.kube.ToRawKubeConfigLoader()
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-conndrain/" + buildVersion()
	// One request for each node, for all nodes at once.
	config.QPS, config.Burst = 50, 300
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c := &cluster{client: client, run: execRunner{config, client}, namespace: namespace}
	if raw, err := loader.RawConfig(); err == nil { // only to have a name for the caller
		current := cmp.Or(*p.kube.Context, raw.CurrentContext)
		if context := raw.Contexts[current]; context != nil {
			c.user = context.AuthInfo
		}
		c.user = cmp.Or(*p.kube.AuthInfoName, c.user)
	}
	return c, nil
}

// helper is one node's.
type helper struct {
	node string
	pod  corev1.Pod
}

// fault is why the helper cannot be asked, or nil: it may still be known to be
// there.
func (h helper) fault() error {
	if h.pod.DeletionTimestamp != nil {
		return fmt.Errorf("its helper %s is being replaced: try again in a moment", h.pod.Name)
	}
	if h.pod.Status.Phase != corev1.PodRunning {
		return fmt.Errorf("its helper %s is %s: kubectl -n %s describe pod %s",
			h.pod.Name, cmp.Or(h.pod.Status.Phase, "not running"), h.pod.Namespace, h.pod.Name)
	}
	return nil
}

// helpers are those of the cluster, or of one node, by name of the node. A node
// that has two of them while one is being replaced is asked at the one that stays.
func (p *plugin) helpers(ctx context.Context, c *cluster, node string) ([]helper, error) {
	list, err := c.client.CoreV1().Pods(p.helperNamespace).List(ctx, metav1.ListOptions{LabelSelector: p.helperSelector})
	if err != nil {
		return nil, fmt.Errorf("list the helpers: %w", err)
	}
	byNode := make(map[string]helper)
	for _, pod := range list.Items {
		name := pod.Spec.NodeName
		if name == "" || node != "" && name != node {
			continue
		}
		h := helper{name, pod}
		if known, ok := byNode[name]; !ok || known.fault() != nil && h.fault() == nil {
			byNode[name] = h
		}
	}
	switch {
	case len(byNode) > 0:
	case node != "":
		return nil, fmt.Errorf("node %s has no helper to ask (for a pod write pod/%[1]s): the hooks of its pods go by the pods' own sockets until there is one. kubectl -n %[2]s get pods -o wide shows where helpers run",
			node, p.helperNamespace)
	default:
		return nil, fmt.Errorf("there is no helper in namespace %s: is conndrain installed? --helper-namespace says where", p.helperNamespace)
	}
	all := make([]helper, 0, len(byNode))
	for _, h := range byNode {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b helper) int { return cmp.Compare(a.node, b.node) })
	return all, nil
}

// pod finds a pod of the caller's.
func (c *cluster) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no pod %s in namespace %s: it has ended, or is in another namespace (-n)", name, namespace)
	case err != nil:
		return nil, fmt.Errorf("get pod: %w", err)
	case pod.Spec.NodeName == "":
		return nil, fmt.Errorf("pod %s/%s is on no node yet, so nothing holds it", namespace, name)
	}
	return pod, nil
}

// caller is the name that an Event gives the one who releases a pod: what the API
// calls them, or else what their kubeconfig does.
func (c *cluster) caller(ctx context.Context) string {
	review, err := c.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && review.Status.UserInfo.Username != "" {
		return review.Status.UserInfo.Username
	}
	return cmp.Or(c.user, "somebody")
}
