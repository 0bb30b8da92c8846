//go:build linux

package main

import (
	"math/rand/v2"
	"strings"
)

// trialsOf are those of one round: each kind on each server that can do it, over
// one of the links, in an order that the seed decides.
func trialsOf(o options, kinds []kind, links []link, round uint64) ([]trial, error) {
	luck := rand.New(rand.NewPCG(o.seed, round))
	var all []trial
	for server := range strings.SplitSeq(o.servers, ",") {
		if _, _, err := productOf(server); err != nil {
			return nil, err
		}
		for _, k := range kinds {
			if !k.on(server) {
				continue
			}
			l := links[luck.IntN(len(links))]
			all = append(all, trial{server: server, kind: k, link: l.name, direct: l.direct(), seed: luck.Uint64()})
		}
	}
	luck.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}
