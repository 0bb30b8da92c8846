//go:build linux

package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/conndrain/conndrain/lifecycle/requests"
)

// recorder writes a batch's looks into a file, and what is known in the end, so that
// another rule can be held against the same looks. A nil one does nothing.
type recorder struct {
	file *os.File
	to   *gob.Encoder
	err  error
}

// entry is a part of such a file: a look at a trial's connections, or, at its end, a
// trial.
type entry struct {
	Number   uint64
	From, To time.Time
	Figures  []requests.Figures
	Trial    *past
}

// past is a trial that is over.
type past struct {
	Server, Kind, Link string
	Direct             bool
	Seed               uint64
	Requests           []pastRequest
}

type pastRequest struct {
	ID                     uint64
	Client                 netip.AddrPort
	Begin, Sent, Body, End time.Time
	Began, More, Last      time.Time
	Failed                 bool
}

func newRecorder(dir string, number int) (*recorder, error) {
	if dir == "" {
		return nil, nil
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%03d%s", number, recordSuffix)))
	if err != nil {
		return nil, err
	}
	return &recorder{file: f, to: gob.NewEncoder(f)}, nil
}

const recordSuffix = ".looks"

func (r *recorder) look(number uint64, from, to time.Time, all []requests.Figures) {
	if r == nil || r.err != nil {
		return
	}
	r.err = r.to.Encode(entry{Number: number, From: from, To: to, Figures: all})
}

// end writes what is known of the trials, and closes the file.
func (r *recorder) end(trials []*running) error {
	if r == nil {
		return nil
	}
	for _, t := range trials {
		p := &past{Server: t.server, Kind: t.kind.name, Link: t.link, Direct: t.direct, Seed: t.seed}
		for id, q := range t.truth.requests {
			p.Requests = append(p.Requests, pastRequest{id, q.client, q.begin, q.sent, q.body, q.end, q.began, q.more, q.last, q.failed})
		}
		r.err = errors.Join(r.err, r.to.Encode(entry{Number: t.number, Trial: p}))
	}
	return errors.Join(r.err, r.file.Close())
}

// replay judges the looks of all files of a directory anew.
func replay(dir string, kinds []kind) ([]cell, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+recordSuffix))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no files called *%s: record some with --record", dir, recordSuffix)
	}
	var cells []cell
	for _, file := range files {
		of, err := replayFile(file, kinds)
		if err != nil {
			return nil, fmt.Errorf("replay %s: %w", file, err)
		}
		cells = append(cells, of...)
	}
	return cells, nil
}

func replayFile(file string, kinds []kind) (cells []cell, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	trials := make(map[uint64]*running)
	from := gob.NewDecoder(f)
	for {
		var e entry
		if err := from.Decode(&e); errors.Is(err, io.EOF) {
			return cells, nil
		} else if err != nil {
			return nil, err
		}
		r := trials[e.Number]
		if r == nil {
			r = newRunning(trial{}, nil)
			trials[e.Number] = r
		}
		if e.Trial == nil {
			r.look(e.From, e.To, e.Figures)
			continue
		}
		at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == e.Trial.Kind })
		if at < 0 {
			continue
		}
		r.trial = trial{server: e.Trial.Server, kind: kinds[at], link: e.Trial.Link, direct: e.Trial.Direct, seed: e.Trial.Seed}
		r.truth.direct = e.Trial.Direct
		for _, q := range e.Trial.Requests {
			r.truth.requests[q.ID] = &request{
				client: q.Client, begin: q.Begin, sent: q.Sent, body: q.Body, end: q.End,
				began: q.Began, more: q.More, last: q.Last, failed: q.Failed,
			}
		}
		cells = append(cells, r.tabulate())
	}
}
