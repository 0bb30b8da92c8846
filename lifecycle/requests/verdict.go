package requests

import "time"

// Verdict is what is said of one connection at one look.
type Verdict struct {
	// Strict and Wide are its class by either rule.
	Strict, Wide Class
	// Silent is how long nothing has moved, at the least.
	Silent time.Duration
	// Turns are the complete requests seen on this connection.
	Turns int
	// Request is how long the latest request has gone on, or would have if it were not
	// over, at the most: Endless where its beginning was not seen.
	Request time.Duration
	// Alternates is set once several requests were seen to follow an answer on this
	// connection, while none of its answers was ever seen to pause.
	Alternates bool
}

// By is the class by a rule.
func (v Verdict) By(rule Rule) Class {
	if rule == Wide {
		return v.Wide
	}
	return v.Strict
}

// Classifier keeps the history of the connections of one network namespace. It is
// not safe for concurrent use.
type Classifier struct {
	strict, wide history
}

// New returns a Classifier that knows nothing yet.
func New() *Classifier { return &Classifier{strict: newHistory(Strict), wide: newHistory(Wide)} }

// Look takes in one look at all connections, and returns what they are doing now, in
// the look's order. Connections that it does not have are forgotten, what their ports
// have taught is not. Looks have to come in the order of their time.
func (c *Classifier) Look(at time.Time, all []Figures) []Verdict {
	verdicts := make([]Verdict, len(all))
	c.strict.look(at, all, func(i int, _ *connection, class Class) {
		verdicts[i].Strict = class
	})
	c.wide.look(at, all, func(i int, kept *connection, class Class) {
		v := &verdicts[i]
		v.Wide, v.Turns, v.Request = class, kept.turns, Endless
		if !all[i].Known {
			return
		}
		v.Alternates = !kept.paused && kept.pace.turns >= enough
		v.Silent = max(at.Sub(kept.moved), all[i].silent())
		v.Request = kept.pace.age(at)
	})
	return verdicts
}
