package node

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// codedAtOnce is how many requests are decoded, or large answers encoded, at the same
// time, whoever sent them.
const codedAtOnce = 2

// turns let each pod have one large request read at a time, and few be decoded or answers encoded at once, so
// that none of a pod's costs the other pods anything. The zero
// value is ready for use. They are safe for concurrent use.
type turns struct {
	mu sync.Mutex
	of map[types.UID]*turn

	once   sync.Once
	coding chan struct{}
}

type turn struct {
	taken   chan struct{}
	waiting int
}

// take blocks until it is the pod's next request's turn, or until ctx ends, and returns
// what ends the turn.
func (t *turns) take(ctx context.Context, uid types.UID) (end func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = make(map[types.UID]*turn)
	}
	one := t.of[uid]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		t.of[uid] = one
	}
	one.waiting++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.waiting--; one.waiting == 0 {
			delete(t.of, uid)
		}
	}
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// code runs f, which must not wait for anybody.
func (t *turns) code(f func() error) error {
	t.once.Do(func() { t.coding = make(chan struct{}, codedAtOnce) })
	t.coding <- struct{}{}
	defer func() { <-t.coding }()
	return f()
}
