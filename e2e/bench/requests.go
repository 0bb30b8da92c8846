package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/conndrain/conndrain/e2e/cluster"
)

// requests counts what the helpers ask the API server for, by its own log of them: by verb and resource.
type requests map[string]int

func (r requests) sum() int {
	n := 0
	for _, count := range r {
		n += count
	}
	return n
}

// String lists them, the most frequent first.
func (r requests) String() string {
	names := slices.Collect(maps.Keys(r))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(r[b], r[a]), cmp.Compare(a, b)) })
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%s %d", name, r[name]))
	}
	return strings.Join(all, ", ")
}

// auditEvent is what matters of a line of the API server's log.
type auditEvent struct {
	Stage     string
	Verb      string
	ObjectRef struct{ Resource, Namespace, Subresource string }
}

// everySlice is how a request for the EndpointSlices of the whole cluster is counted.
const everySlice = "endpointslices of every namespace"

// countRequests reads lines of the log. A watch counts when it begins, all else when it ends.
func countRequests(log string) (requests, error) {
	all := requests{}
	for line := range strings.Lines(log) {
		var e auditEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("read the API server's log: %w: %q", err, line)
		}
		counted := "ResponseComplete"
		if e.Verb == "watch" {
			counted = "ResponseStarted"
		}
		if e.Stage != counted && e.Stage != "Panic" {
			continue
		}
		what := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		if e.ObjectRef.Resource == "endpointslices" && e.ObjectRef.Namespace == "" {
			what = everySlice
		}
		all[e.Verb+" "+what]++
	}
	return all, nil
}

// requestsSince counts what has been asked for since the mark, a length of the log, and returns the next mark.
func (s *site) requestsSince(ctx context.Context, mark int) (requests, int, error) {
	out, err := s.Control.Run(ctx, "tail", fmt.Sprintf("--bytes=+%d", mark+1), cluster.AuditLog)
	if err != nil {
		return nil, 0, err
	}
	whole := out[:strings.LastIndexByte(out, '\n')+1]
	all, err := countRequests(whole)
	return all, mark + len(whole), err
}

// settledRequests is requestsSince, but blocks until nobody has asked for anything for some seconds: Events are sent later.
func (s *site) settledRequests(ctx context.Context, mark int) (requests, int, error) {
	const quiet = 5 * time.Second
	var all requests
	last, since, next := -1, time.Now(), mark
	err := await(ctx, "helpers ask for nothing", func(ctx context.Context) (err error) {
		if all, next, err = s.requestsSince(ctx, mark); err != nil {
			return err
		}
		if n := all.sum(); n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("they ask")
		}
		return nil
	})
	return all, next, err
}
