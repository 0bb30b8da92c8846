package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/product"
)

// A helper whose port is taken says so on its node and is not ready, until it can have it.
func testPortTaken(_ *testing.T, s space) {
	n := s.node("n2")
	address := net.JoinHostPort(n.Addresses[0], strconv.Itoa(apiPort))
	s.signal(n.Name, "conndrain-node", "KILL")
	var taken net.Listener
	s.eventually("the port is taken", func(context.Context) error {
		return n.Namespace().Do(func() (err error) {
			taken, err = net.Listen("tcp", address)
			return err
		})
	})
	defer taken.Close()
	s.eventually("an Event on the node", func(ctx context.Context) error {
		list, err := s.c.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,reason=PortTaken,involvedObject.name=" + n.Name,
		})
		if err != nil {
			return err
		}
		var texts []string
		for _, e := range list.Items {
			if hasAll(e.Message, []string{address}) {
				return nil
			}
			texts = append(texts, e.Message)
		}
		return fmt.Errorf("none of %q names %s", texts, address)
	})
	s.eventually("the helper is not ready", func(ctx context.Context) error { return s.helperReady(ctx, n.Name, false) })
	taken.Close()
	s.eventually("the helper is ready", func(ctx context.Context) error { return s.helperReady(ctx, n.Name, true) })
}

// helperReady is an error unless the helper of the node is ready, or is not.
func (s space) helperReady(ctx context.Context, node string, want bool) error {
	list, err := s.c.Client.CoreV1().Pods(product.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err
	}
	for _, pod := range list.Items {
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Running != nil && c.Ready == want {
				return nil
			}
		}
		if len(pod.Status.ContainerStatuses) > 0 {
			err = errors.Join(err, fmt.Errorf("%s is %+v", pod.Name, pod.Status.ContainerStatuses[0]))
		}
	}
	return errors.Join(errors.New("it is not"), err)
}
