package sockdiag

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// attribute is one netlink attribute, padded.
func attribute(kind uint16, data []byte) []byte {
	b := make([]byte, 4, 4+len(data)+3)
	binary.NativeEndian.PutUint16(b, uint16(4+len(data)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func TestDecodeTraffic(t *testing.T) {
	t.Parallel()
	info := make([]byte, infoSize+24) // a newer kernel's is longer
	for at, v := range map[int]uint32{
		infoUnackedAt: 1, infoLastDataSentAt: 2, infoLastDataRecvAt: 3, infoRTTAt: 4, infoTotalRetransAt: 5,
		infoSegsOutAt: 6, infoNotsentAt: 7, infoDataSegsInAt: 8, infoDataSegsOutAt: 9, infoOutOfOrderAt: 10,
		infoSndMSSAt: 11,
	} {
		binary.NativeEndian.PutUint32(info[at:], v)
	}
	for at, v := range map[int]uint64{
		infoBytesAckedAt: 1 << 40, infoBytesReceivedAt: 1 << 41, infoBytesSentAt: 1 << 42, infoBytesRetransAt: 1 << 43,
	} {
		binary.NativeEndian.PutUint64(info[at:], v)
	}
	whole := Traffic{
		Known: true, Unacknowledged: 1, SinceSent: 2 * time.Millisecond, SinceReceived: 3 * time.Millisecond,
		RoundTrip: 4 * time.Microsecond, Retransmits: 5, Segments: 6, Unsent: 7, DataReceived: 8, DataSent: 9, OutOfOrder: 10,
		SegmentSize:  11,
		Acknowledged: 1 << 40, Received: 1 << 41, Sent: 1 << 42, Retransmitted: 1 << 43,
	}
	older := whole
	older.OutOfOrder = 0
	for _, tt := range []struct {
		name string
		b    []byte
		want Traffic
	}{
		{"alone", attribute(attributeInfo, info), whole},
		{"after another", append(attribute(8, []byte{1}), attribute(attributeInfo, info)...), whole},
		{"of Linux 4.19", attribute(attributeInfo, info[:infoSize]), older},
		{"of one that tells a little more", attribute(attributeInfo, info[:infoOutOfOrderAt+3]), older},
		{"of one that counts what came too early", attribute(attributeInfo, info[:infoOutOfOrderAt+4]), whole},
		{"of an old kernel", attribute(attributeInfo, info[:infoSize-1]), Traffic{}},
		{"none", attribute(8, info), Traffic{}},
		{"nothing", nil, Traffic{}},
		{"cut off", attribute(attributeInfo, info)[:100], Traffic{}},
		{"a length of zero", make([]byte, 400), Traffic{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, decodeTraffic(tt.b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDecodeTraffic(f *testing.F) {
	f.Add(attribute(attributeInfo, make([]byte, infoSize)))
	f.Add([]byte{4, 0, 2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := decodeTraffic(b)
		if !got.Known && got != (Traffic{}) {
			t.Errorf("%+v is not known", got)
		}
		if got.Known && len(b) < infoSize {
			t.Errorf("%d bytes are a whole struct tcp_info", len(b))
		}
	})
}
