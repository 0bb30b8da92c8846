package node

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/conndrain/conndrain/lifecycle"
)

// releaseWait is how long a release may take to be seen: a drain looks up at once.
const releaseWait = 5 * time.Second

// release ends the drains that the request names, and returns how they stand then.
// It blocks until they are released, for releaseWait or until ctx ends. A drain
// that was released before is told of as it is, where the request names its pod.
func (all *drains) release(ctx context.Context, r lifecycle.ReleaseRequest) lifecycle.ReleaseAnswer {
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	a := lifecycle.ReleaseAnswer{Released: []lifecycle.DrainStatus{}, Missing: slices.Clone(r.Pods)}
	var chosen []*drain
	for _, d := range all.list() {
		s := d.status(time.Now())
		named := func(p lifecycle.PodRef) bool {
			return p.Namespace == s.Namespace && p.Name == s.Pod && (p.UID == "" || p.UID == s.UID)
		}
		switch {
		case slices.ContainsFunc(r.Pods, named):
			a.Missing = slices.DeleteFunc(a.Missing, named)
		case r.All && (r.Namespace == "" || r.Namespace == s.Namespace) && s.Phase != lifecycle.Released.String():
		default:
			continue
		}
		d.release(clip(r.By), clip(r.Why))
		chosen = append(chosen, d)
	}
	for _, d := range chosen {
		select {
		case <-d.released:
		case <-ctx.Done():
		}
		a.Released = append(a.Released, d.status(time.Now()))
	}
	return a
}

// maxSaid is how much of a person's text an Event repeats.
const maxSaid = 200

// clip leaves one line of what a person has said, and nothing that would mean
// something to a terminal.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxSaid {
		return string(runes[:maxSaid]) + "..."
	}
	return text
}
