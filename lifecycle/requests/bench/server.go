//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// server is one that runs in the namespace.
type server struct {
	port uint16
	tls  bool
	stop func()
}

func serverNames() []string { return []string{"go", "go-tls"} }

// start starts a server by its name.
func start(ctx context.Context, name string, ns *netlab.Namespace, known *truth) (server, error) {
	switch name {
	case "go", "go-tls":
		return startGo(ctx, ns, known, name == "go-tls")
	}
	return server{}, fmt.Errorf("unknown server %q: use one of %v", name, serverNames())
}

func startGo(ctx context.Context, ns *netlab.Namespace, known *truth, secure bool) (server, error) {
	l, err := ns.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return server{}, err
	}
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	if secure {
		certificate, err := selfSigned()
		if err != nil {
			return server{}, err
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}})
	}
	s := &http.Server{Handler: answerer{known}, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with stop
	}()
	return server{port: port, tls: secure, stop: func() {
		_ = s.Close() // what its clients wanted to know they know
		<-done
	}}, nil
}

type answerer struct{ truth *truth }

// ServeHTTP does what a request asks for: work for so long, then so many bytes in so
// many parts with pauses between them.
func (a answerer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := func(name string) int {
		n, _ := strconv.Atoi(r.URL.Query().Get(name)) // absent is 0
		return n
	}
	wait := func(ms int) {
		if ms > 0 {
			rest(r.Context(), time.Duration(ms)*time.Millisecond)
		}
	}
	_, _ = io.Copy(io.Discard, r.Body) // the client's trouble shows at the client
	parts := max(1, number("parts"))
	flush := http.NewResponseController(w)
	wait(number("work"))
	w.Header().Set("Content-Length", strconv.Itoa(number("size")*parts))
	if number("early") > 0 {
		w.WriteHeader(http.StatusOK)
		_ = flush.Flush()
		wait(number("early"))
	}
	part := make([]byte, number("size"))
	for i := range parts {
		if i > 0 {
			wait(number("pause"))
		}
		if i == parts-1 {
			client, err := netip.ParseAddrPort(r.RemoteAddr)
			if err != nil {
				return
			}
			a.truth.last(client)
		}
		if _, err := w.Write(part); err != nil {
			return
		}
		_ = flush.Flush()
	}
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
