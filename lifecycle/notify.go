package lifecycle

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultNotifyAfter is how long nothing new has to have come before the application
// is told, if the quiet time is twice as long. A server that stops listening when it is
// told refuses who comes then, and not each node and proxy knows of the withdrawal at
// once.
const DefaultNotifyAfter = 3 * time.Second

// NotifyAt is when the application is told that the drain has begun: so long after
// the withdrawal and after the latest new session. That goes on for as long as the quiet
// time at the most: some clients do not go by what routes. nil is the default.
func (o Observation) NotifyAt(after *time.Duration) time.Time {
	wait := min(DefaultNotifyAfter, o.Policy.Settle/2)
	if after != nil {
		wait = *after
	}
	withdrawn := o.withdrawnAt()
	due := earlier(later(withdrawn, o.LastNew).Add(wait), withdrawn.Add(max(wait, o.Policy.Settle)))
	if after == nil && !o.Deadline.IsZero() {
		due = earlier(due, withdrawn.Add(o.Deadline.Sub(withdrawn)/2)) // late is better than never
	}
	return due
}

// notifySignals are those that an application may be told by. The kernel sends none
// of them to the first process of a container that does not handle it.
var notifySignals = []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH"}

// maxNotifyPath bounds what a hook is told to ask for.
const maxNotifyPath = 1024

// notify reads how the application is told: a signal's name, or a URL without a host
// that GET or POST may stand before.
func (p *parser) notify(value string) (*Notify, string) {
	const allowed = ": use one like http://:8080/-/quiesce, GET http://:8080/-/quiesce or SIGUSR1"
	if slices.Contains(notifySignals, value) {
		return &Notify{Signal: value}, ""
	}
	if strings.HasPrefix(value, "SIG") {
		return nil, "is none of the signals " + strings.Join(notifySignals, ", ")
	}
	method, address, given := strings.Cut(value, " ")
	if !given {
		method, address = "POST", value
	}
	if method != "GET" && method != "POST" {
		return nil, "has a method other than GET and POST" + allowed
	}
	u, err := url.Parse(strings.TrimSpace(address))
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https"):
		return nil, "is neither a URL of http or https nor a signal" + allowed
	case u.Hostname() != "" || u.User != nil:
		return nil, "names a host: only the pod itself is asked" + allowed
	case u.Fragment != "" || len(u.RequestURI()) > maxNotifyPath:
		return nil, "has a fragment or a path of more than " + strconv.Itoa(maxNotifyPath) + " bytes" + allowed
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return nil, "has no port" + allowed
	}
	return &Notify{Method: method, Scheme: u.Scheme, Port: uint16(port), Path: u.RequestURI()}, ""
}
