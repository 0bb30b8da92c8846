package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// followEvery is how often a watch asks. Each time costs one command in each
// helper.
const followEvery = 2 * time.Second

// follow shows the status until ctx ends, or until the pod that was asked for is
// gone. On a terminal it writes over what was there; elsewhere it writes again when
// more than the time has changed, and in JSON an object each time.
func (s *status) follow(ctx context.Context) error {
	var last string
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		v, err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !first && s.podName != "" && s.gone(ctx):
			fmt.Fprintf(s.streams.ErrOut, "Pod %s/%s is gone.\n", s.namespace, s.podName)
			return nil
		case err != nil && first:
			return err
		case err != nil: // the API may be back in a moment
			v = view{talk: []string{"unknown at the moment: " + oneLine(err)}}
			if s.output == "json" {
				fmt.Fprintln(s.streams.ErrOut, v.talk[0])
				break
			}
			fallthrough
		default:
			if last, err = s.showAgain(v, last); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// showAgain shows a view unless it only repeats the last one, and returns what the
// next is compared with.
func (s *status) showAgain(v view, last string) (string, error) {
	if s.output == "json" {
		return "", s.show(v)
	}
	var b bytes.Buffer
	if s.screen {
		b.WriteString("\x1b[H\x1b[J") // from the top, over what was there
		fmt.Fprintf(&b, "%s\n\n", time.Now().Format(time.TimeOnly))
	}
	if err := s.writeText(&b, v); err != nil {
		return "", err
	}
	for _, line := range v.talk {
		fmt.Fprintln(&b, line)
	}
	now := v.untimed()
	if !s.screen && now == last {
		return now, nil
	}
	if !s.screen && last != "" {
		fmt.Fprintln(s.streams.Out)
	}
	_, err := s.streams.Out.Write(b.Bytes())
	return now, err
}

// untimed is the view without what changes by itself.
func (v view) untimed() string {
	r := report{}
	for _, n := range v.report.Nodes {
		drains := filtered(n.Drains, in(""))
		for i := range drains {
			d := &drains[i]
			d.ElapsedSeconds, d.RemainingSeconds, d.Between = 0, nil, nil // clients that pause all the time
			peers := d.Peers
			d.Peers = nil
			for _, p := range peers {
				p.AgeSeconds, p.QuietSeconds, p.Request = nil, nil, ""
				d.Peers = append(d.Peers, p)
			}
		}
		n.Drains = drains
		r.Nodes = append(r.Nodes, n)
	}
	b, err := json.Marshal(r)
	if err != nil {
		return "" // shown again, which is no harm
	}
	return fmt.Sprint(string(b), v.talk)
}

// gone says whether the pod that was asked for is no more.
func (s *status) gone(ctx context.Context) bool {
	_, err := s.client.CoreV1().Pods(s.namespace).Get(ctx, s.podName, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}
