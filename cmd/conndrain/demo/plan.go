package demo

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"time"
)

// warmUp is how long the downloads have been running when the pod is deleted.
const warmUp = 1200 * time.Millisecond

// stream is the one of the generator's streams that is used. In this one the ends
// of the default seed are spread well.
const stream = 283

// bytesPerSecond is how fast a slow download is.
const bytesPerSecond = 256 << 10

// planned is one slow download: the server takes length for it.
type planned struct {
	name string
	seed uint64
	// begin is when it starts, seen from the pod's deletion.
	begin, length time.Duration
	size          int64
}

// late says whether it starts after the pod's deletion, as clients do that have
// not heard of it yet.
func (p planned) late() bool { return p.begin >= 0 }

// content returns the size bytes that both sides know without telling each other.
func (p planned) content() io.Reader {
	var key []byte
	key = binary.BigEndian.AppendUint64(key, p.seed)
	key = append(key, p.name...)
	return io.LimitReader(rand.NewChaCha8(sha256.Sum256(key)), p.size)
}

// newPlan draws the downloads of a seed: seven that are running when the pod is
// deleted, of which one ends last, after 13 to 17 s, and a late one.
func newPlan(seed uint64) []planned {
	r := rand.New(rand.NewPCG(seed, stream))
	between := func(from, to time.Duration) time.Duration {
		return from + time.Duration(r.Int64N(int64(to-from)))
	}
	const early = 7
	ends := []time.Duration{between(13*time.Second, 17*time.Second)}
	for len(ends) < early {
		ends = append(ends, between(1500*time.Millisecond, 12500*time.Millisecond))
	}
	r.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })

	var plan []planned
	add := func(begin, length time.Duration) {
		plan = append(plan, planned{
			name: string(rune('A' + len(plan))), seed: seed, begin: begin, length: length,
			// An odd few bytes more, so that no size is a multiple of a buffer's.
			size: int64(length.Seconds()*bytesPerSecond) + r.Int64N(1000),
		})
	}
	for _, end := range ends {
		add(-warmUp, end+warmUp)
	}
	begin := between(1200*time.Millisecond, 2600*time.Millisecond)
	add(begin, between(3*time.Second, 9*time.Second))
	return plan
}

// idleAfter is the idle rule of the wait.
const idleAfter = 3 * time.Second
