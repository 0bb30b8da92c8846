package conntrack

import (
	"encoding/json"
	"testing"
	"time"
)

func TestSessionJSON(t *testing.T) {
	whole := Session{
		Protocol: TCP, State: Open, Kernel: "CLOSE_WAIT", ClosedFirst: ClientSide,
		Client: addrPort("10.244.1.1:61000"), Origin: addrPort("192.168.10.20:40000"),
		Server: addrPort("10.244.1.7:8080"), Destination: addrPort("10.96.0.10:80"),
		Offloaded: true, Zones: []uint16{2, 9}, Quiet: 1500 * time.Millisecond,
	}
	for name, tt := range map[string]struct {
		s    Session
		want string
	}{
		"inbound": {whole, `{"protocol":"tcp","client":"10.244.1.1:61000","server":"10.244.1.7:8080",` +
			`"origin":"192.168.10.20:40000","destination":"10.96.0.10:80","direction":"inbound","state":"open",` +
			`"kernel":"CLOSE_WAIT","closedFirst":"client","offloaded":true,"zones":[2,9],"quietSeconds":1.5,"source":"conntrack"}`},
		"outbound IPv6 UDP": {Session{
			Protocol: UDP, State: Idle, Outbound: true, Quiet: -1,
			Client: addrPort("[fd00::7]:50000"), Origin: addrPort("[fd00::7]:50000"),
			Server: addrPort("[fd00::8]:53"), Destination: addrPort("[fd00::8]:53"),
		}, `{"protocol":"udp","client":"[fd00::7]:50000","server":"[fd00::8]:53",` +
			`"origin":"[fd00::7]:50000","destination":"[fd00::8]:53","direction":"outbound","state":"idle",` +
			`"quietSeconds":null,"source":"conntrack"}`},
		"known from a socket only": {Session{
			Protocol: TCP, State: Open, Source: FromSockets, Quiet: -1,
			Client: addrPort("10.0.0.1:1"), Origin: addrPort("10.0.0.1:1"),
			Server: addrPort("10.0.0.2:2"), Destination: addrPort("10.0.0.2:2"),
		}, `{"protocol":"tcp","client":"10.0.0.1:1","server":"10.0.0.2:2",` +
			`"origin":"10.0.0.1:1","destination":"10.0.0.2:2","direction":"inbound","state":"open",` +
			`"quietSeconds":null,"source":"sockets"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(tt.s)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestStateWords(t *testing.T) {
	for s, want := range map[State]string{
		Opening: "opening", Open: "open", Idle: "idle", Lost: "lost", Over: "over", 0: "state 0", 9: "state 9",
	} {
		if s.String() != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}

func TestStateName(t *testing.T) {
	for _, tt := range []struct {
		proto Protocol
		state uint8
		has   bool
		want  string
	}{
		{TCP, 3, true, "ESTABLISHED"},
		{TCP, 9, true, "SYN_SENT2"},
		{TCP, 10, true, ""},
		{TCP, 0, true, "NONE"},
		{TCP, 0, false, ""},
		{SCTP, 4, true, "ESTABLISHED"},
		{SCTP, 7, true, "SHUTDOWN_ACK_SENT"},
		{SCTP, 10, true, ""},
		{UDP, 3, true, ""},
	} {
		if got := stateName(tt.proto, tt.state, tt.has); got != tt.want {
			t.Errorf("%s %d: %q, want %q", tt.proto, tt.state, got, tt.want)
		}
	}
}
