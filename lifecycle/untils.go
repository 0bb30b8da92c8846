package lifecycle

import (
	"strconv"
	"strings"
)

// untils reads what a pod is held for: a word, words of single ports, or both. One
// wrong entry makes all of it malformed.
func (p *parser) untils(value string) (Untils, string) {
	var u Untils
	entries := strings.Split(value, ",")
	if len(entries) > maxPorts {
		return Untils{}, "names too many ports: use up to " + strconv.Itoa(maxPorts)
	}
	rest := false
	for _, entry := range entries {
		port, word, single := strings.Cut(strings.TrimSpace(entry), "=")
		if !single {
			port, word = "", port
		}
		until, ok := untilOf(strings.TrimSpace(word))
		switch {
		case !ok:
			return Untils{}, "is unknown: use sessions, requests, requests-strict or withdrawn, or such a word for single ports, like 8080=requests,9000=sessions"
		case !single && rest:
			return Untils{}, "has two words without a port: use one"
		case !single:
			u.Rest, rest = until, true
			continue
		}
		numbers := p.port(strings.TrimSpace(port))
		if len(numbers) == 0 {
			return Untils{}, "has an entry whose port is " + noPort + strconv.Quote(shorten(entry))
		}
		for _, n := range numbers {
			if u.Ports == nil {
				u.Ports = make(map[uint16]Until)
			}
			if before, twice := u.Ports[n]; twice && before != until {
				return Untils{}, "says two things of port " + strconv.Itoa(int(n)) + ": use one"
			}
			u.Ports[n] = until
		}
	}
	return u, ""
}

func untilOf(word string) (Until, bool) {
	for u, name := range untilNames {
		if word == name {
			return Until(u), true
		}
	}
	return UntilSessions, false
}
