package conntrack

import (
	"slices"
	"time"
)

// question is a look at one flow. An answer counts only if nothing was learned of
// the flow meanwhile.
type question struct {
	host    *host
	flow    *flow
	touched uint64
}

// answer is what the kernel said to one question, if it did.
type answer struct {
	told, found bool
	entry       entry
}

// asking is a round of questions about known flows. keys and answers are those of
// the batch that is asked now.
type asking struct {
	questions []question
	keys      []flowKey
	answers   []answer
}

// clear begins a new round, and lets go of what was dropped since.
func (a *asking) clear() {
	clear(a.questions)
	a.questions = a.questions[:0]
}

func (a *asking) add(h *host, f *flow) {
	a.questions = append(a.questions, question{host: h, flow: f, touched: f.touched})
}

// put asks all questions and hands the answers to take, some at a time.
func (a *asking) put(to asker, take func(questions []question, answers []answer, asked time.Time)) error {
	for batch := range slices.Chunk(a.questions, applyBatch) {
		a.keys = a.keys[:0]
		for _, q := range batch {
			a.keys = append(a.keys, q.flow.key()) // what never changes of a flow
		}
		a.answers = append(a.answers[:0], make([]answer, len(batch))...)
		asked := time.Now()
		err := to.ask(a.keys, func(i int, e *entry) {
			a.answers[i].told = true
			if e != nil {
				a.answers[i].found, a.answers[i].entry = true, *e
			}
		})
		take(batch, a.answers, asked)
		if err != nil {
			return err
		}
	}
	return nil
}

// take takes in the answers to some questions.
func (r *Reader) take(questions []question, answers []answer, asked time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for i, q := range questions {
		h, f, a := q.host, q.flow, &answers[i]
		if !a.told || h.flows[f.key()] != f || f.touched != q.touched {
			continue
		}
		changed := true
		if a.found {
			changed = h.observe(&a.entry, f.young, asked, now)
		} else {
			h.vanished(f, now)
		}
		if changed {
			h.notify()
		}
		if h.lost {
			wake(r.walk)
		}
	}
}
