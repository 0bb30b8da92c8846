package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// delays are how long after they could go the pods' hooks were told, by the helper's own histogram.
type delays struct {
	n, soon, sum float64
}

// soonBucket is the bound of the histogram's bucket that is called soon.
const soonBucket = "0.5"

func (h helper) delays(ctx context.Context) (d delays, err error) {
	const name = "conndrain_release_delay_seconds"
	read := func(series string) float64 {
		v, failed := h.metric(ctx, name+series)
		err = errors.Join(err, failed)
		return v
	}
	d = delays{n: read("_count"), soon: read(`_bucket{le="` + soonBucket + `"}`), sum: read("_sum")}
	return d, err
}

// since leaves those that came after the others.
func (d delays) since(before delays) delays {
	return delays{d.n - before.n, d.soon - before.soon, d.sum - before.sum}
}

// row says what of a time from a last session's end to SIGTERM was the helper's.
func (d delays) row() row {
	measured := "nothing was measured"
	if d.n > 0 {
		mean := time.Duration(d.sum / d.n * float64(time.Second))
		measured = fmt.Sprintf("%s on average, %.0f of %.0f within %s s", span(mean), d.soon, d.n, soonBucket)
	}
	return row{What: "of it until the hook was told; the rest is the hook's, the runtime's and the kubelet's", Measured: measured}
}
