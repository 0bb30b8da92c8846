package demo

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// scene is the network, the pod's servers and all clients. It is used once.
type scene struct {
	lab       *netlab.Lab
	downloads []*client
	// deleted is when the pod was "deleted"; deletion is closed then.
	deleted  time.Time
	deletion chan struct{}

	stop      context.CancelFunc
	servers   []*http.Server
	listeners []net.Listener
	tasks     sync.WaitGroup
	running   sync.WaitGroup
}

// newScene builds the network. Close it, whatever happens.
func newScene(plan []planned) (*scene, error) {
	lab, err := netlab.NewLab(netlab.LabOptions{ServicePort: servicePort, PodPort: podPort})
	if err != nil {
		if inner() {
			return nil, forbidden(err)
		}
		return nil, err
	}
	s := &scene{lab: lab, stop: func() {}, deletion: make(chan struct{})}
	for _, p := range plan {
		s.downloads = append(s.downloads, newClient(p))
	}
	return s, nil
}

// result is what is known of the scene from the start.
func (s *scene) result(seed uint64) result {
	return result{
		Seed:    seed,
		Client:  s.lab.ClientAddr,
		Service: s.service(),
		Pod:     netip.AddrPortFrom(s.lab.PodAddr, podPort),
		Idle:    idle{After: seconds(idleAfter)},
	}
}

func (s *scene) service() netip.AddrPort { return netip.AddrPortFrom(s.lab.ServiceAddr, servicePort) }

// early is how many downloads run before the pod is deleted.
func (s *scene) early() int {
	n := 0
	for _, d := range s.downloads {
		if !d.late() {
			n++
		}
	}
	return n
}

// start starts servers and clients and waits until all of them talk.
func (s *scene) start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(ctx)
	if err := s.serve(ctx, podPort, s.pages()); err != nil {
		return err
	}
	if err := s.serve(ctx, metricsPort, metricsPage()); err != nil {
		return err
	}
	if err := s.startDatabase(ctx); err != nil {
		return err
	}
	if err := s.startKeepAlive(ctx); err != nil {
		return err
	}
	if err := s.startScraper(ctx); err != nil {
		return err
	}
	for _, d := range s.downloads {
		s.startDownload(ctx, d)
	}
	for _, d := range s.downloads {
		if d.late() {
			continue
		}
		select {
		case <-d.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, _, err := d.times(); err != nil {
			return err
		}
	}
	return nil
}

// delete waits for a moment and says that the pod is deleted: the time runs, for
// the late clients too.
func (s *scene) delete(ctx context.Context) error {
	timer := time.NewTimer(warmUp)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.deleted = time.Now()
	close(s.deletion)
	return nil
}

// kill ends the pod: its servers and all of its connections are gone. Then it
// waits until each download has ended, well or not.
func (s *scene) kill() {
	for _, server := range s.servers {
		_ = server.Close()
	}
	s.running.Wait()
}

// close ends all traffic and the network, and waits for it.
func (s *scene) close() error {
	s.stop()
	for _, l := range s.listeners {
		_ = l.Close()
	}
	s.kill()
	s.tasks.Wait()
	return s.lab.Close()
}

// record is what became of the downloads.
func (s *scene) record() []download {
	var all []download
	for _, d := range s.downloads {
		all = append(all, d.record(s.deleted))
	}
	return all
}

// serve starts an HTTP server in the pod.
func (s *scene) serve(ctx context.Context, port uint16, h http.Handler) error {
	l, err := s.lab.Pod.Listen(ctx, "tcp4", netip.AddrPortFrom(s.lab.PodAddr, port).String())
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	s.servers = append(s.servers, server)
	s.tasks.Go(func() { _ = server.Serve(l) })
	return nil
}

// transport connects from the client's namespace.
func (s *scene) transport() *http.Transport {
	return &http.Transport{DialContext: s.lab.Client.Dial}
}

// startKeepAlive makes one request and then leaves its connection alone.
func (s *scene) startKeepAlive(ctx context.Context) error {
	c := &http.Client{Transport: s.transport()}
	if err := get(ctx, c, "http://"+s.service().String()+"/"); err != nil {
		return err
	}
	s.tasks.Go(func() {
		<-ctx.Done()
		c.CloseIdleConnections()
	})
	return nil
}

// startScraper asks for the metrics every second, on one connection and past the
// Service, as a scraper does.
func (s *scene) startScraper(ctx context.Context) error {
	c := &http.Client{Transport: s.transport()}
	url := "http://" + netip.AddrPortFrom(s.lab.PodAddr, metricsPort).String() + "/metrics"
	if err := get(ctx, c, url); err != nil {
		return err
	}
	s.tasks.Go(func() {
		defer c.CloseIdleConnections()
		everySecond(ctx, func() error { return get(ctx, c, url) })
	})
	return nil
}

// startDatabase gives the pod a connection that it opened itself, to a server
// beside the client.
func (s *scene) startDatabase(ctx context.Context) error {
	at := netip.AddrPortFrom(s.lab.ClientAddr, databasePort).String()
	l, err := s.lab.Client.Listen(ctx, "tcp4", at)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, l)
	s.tasks.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		_, _ = io.Copy(c, c)
		_ = c.Close()
	})
	c, err := s.lab.Pod.Dial(ctx, "tcp4", at)
	if err != nil {
		return err
	}
	s.tasks.Go(func() {
		defer func() { _ = c.Close() }()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		everySecond(ctx, func() error {
			if _, err := io.WriteString(c, "ping"); err != nil {
				return err
			}
			_, err := io.ReadFull(c, make([]byte, len("ping")))
			return err
		})
	})
	return nil
}

// everySecond calls f until it fails or ctx ends.
func everySecond(ctx context.Context, f func() error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for f() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// get makes one request and reads the whole answer.
func get(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
