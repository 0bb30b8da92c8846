package requests

import "fmt"

// Class is what a connection is doing at one moment.
type Class uint8

// The classes. All but Between may lose something when the server ends.
const (
	// Unknown: nobody can tell yet.
	Unknown Class = iota
	// Owes: the server has received something since it last sent, or has not read it.
	Owes
	// Sending: something that the server has sent was not acknowledged, or not sent yet.
	Sending
	// Streaming: an answer that has gone on from here before.
	Streaming
	// Between: the last request was answered, and all of the answer is acknowledged.
	Between
)

var classNames = [...]string{
	Unknown: "unknown", Owes: "owes", Sending: "sending", Streaming: "streaming", Between: "between",
}

// String returns the word used in output, metrics and logs.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// MarshalText returns the same word as String.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
