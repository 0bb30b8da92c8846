package traffic

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// Transfer is one thing that a client asks a server for: so many bytes, sent evenly over that time.
type Transfer struct {
	Bytes    int64
	Duration time.Duration
	Gap      time.Duration // between two parts of it; 0: 50 ms
}

// ErrCorrupt is returned for bytes that are not those of the payload.
var ErrCorrupt = errors.New("payload is corrupt")

// payload is the content of every transfer: the same bytes from the start, whatever the length, and unlike each other,
// so that bytes lost in the middle or swapped are seen.
func payload(n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte([]byte("conndrain end-to-end test bytes."))), n)
}

// usualGap is the time between two parts of a transfer that does not say.
const usualGap = 50 * time.Millisecond

// send writes the transfer's payload in even parts, calling flush after each, until it is done or the context ends.
func send(ctx context.Context, w io.Writer, t Transfer, flush func() error) error {
	gap := t.Gap
	if gap <= 0 {
		gap = usualGap
	}
	parts := max(1, int64(t.Duration/gap))
	tick := time.NewTicker(max(time.Millisecond, t.Duration/time.Duration(parts)))
	defer tick.Stop()
	source, sent := payload(t.Bytes), int64(0)
	for part := int64(1); part <= parts; part++ {
		n := t.Bytes*part/parts - sent
		if _, err := io.CopyN(w, source, n); err != nil {
			return fmt.Errorf("send payload: %w", err)
		}
		sent += n
		if err := flush(); err != nil {
			return fmt.Errorf("flush payload: %w", err)
		}
		if t.Duration == 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// receive reads the transfer's payload to the end of r, counts and hashes every byte of it, and returns how many came.
// It returns io.ErrUnexpectedEOF when r ends too early and ErrCorrupt when the bytes are others.
func receive(r io.Reader, t Transfer) (int64, error) {
	got := sha256.New()
	n, err := io.Copy(got, r)
	if err != nil {
		return n, fmt.Errorf("receive payload: %w", err)
	}
	if n < t.Bytes {
		return n, fmt.Errorf("receive payload: %w: %d of %d bytes", io.ErrUnexpectedEOF, n, t.Bytes)
	}
	want := sha256.New()
	if _, err := io.Copy(want, payload(t.Bytes)); err != nil {
		return n, fmt.Errorf("make payload: %w", err)
	}
	if n > t.Bytes || string(got.Sum(nil)) != string(want.Sum(nil)) {
		return n, fmt.Errorf("receive payload: %w (%d bytes)", ErrCorrupt, n)
	}
	return n, nil
}
