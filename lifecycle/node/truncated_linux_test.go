package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

// An unreadable list is no list of none, where nothing but sockets tells.
func TestGarbageListOnABlindNode(t *testing.T) {
	t.Parallel()
	s := newSceneIn(t, netlab.LabOptions{Untracked: true}, nil, quick)
	s.connectTo(s.serve(), netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort))
	s.delete(60)
	s.withdraw()
	begin, mark := time.Now(), ""
	for time.Since(begin) < 8*time.Second {
		body := fmt.Sprintf(`{"elapsedSeconds":%f,"waitSeconds":1,"sockets":{"mark":%q,"listening":[8080],"truncated":true}}`, time.Since(begin).Seconds(), mark)
		resp, err := s.http.Post("http://"+s.address(), "application/json", strings.NewReader(body))
		must(t, err)
		var a lifecycle.DrainAnswer
		must(t, json.NewDecoder(resp.Body).Decode(&a))
		_ = resp.Body.Close()
		mark = a.Mark
		if a.Released() {
			t.Fatalf("released as %s after %s", a.Reason, time.Since(begin))
		}
	}
}
