package main

import (
	"bytes"
	"io"

	"github.com/conndrain/conndrain/conntrack"
)

// screenView renews a table on a terminal. Each picture is one write over the
// old one, and only if it differs, so that nothing flickers.
type screenView struct {
	w       io.Writer
	screen  *terminal
	subject string
	doing   func() doing
	last    []byte
}

func (v *screenView) show(sessions []conntrack.Session, counts conntrack.Counts, fault error) error {
	title := summary(v.subject, len(sessions), counts)
	if !counts.Known && fault != nil {
		title += " " + fault.Error()
	}
	width, height := v.screen.size()
	picture := picture(title, sessions, v.doing(), width, height)
	if bytes.Equal(picture, v.last) {
		return nil
	}
	first := v.last == nil
	v.last = picture
	if first {
		picture = append([]byte(goHome+eraseDown), picture...)
	}
	_, err := v.w.Write(picture)
	return err
}

// picture is a whole screen: a title, and as much of the table as fits.
func picture(title string, sessions []conntrack.Session, d doing, width, height int) []byte {
	out := []byte(goHome)
	line := func(text []byte) {
		// The last column stays free: a terminal may wrap when it is written to.
		out = append(out, text[:min(len(text), width-1)]...)
		out = append(out, eraseRest+"\r\n"...)
	}
	line([]byte(title))
	line(nil)
	// Besides the title and the empty line there are the table's head, a line
	// for what does not fit, and the cursor's own.
	room := max(height-5, 0)
	hidden := max(len(sessions)-room, 0)
	if shown := sessions[:len(sessions)-hidden]; len(shown) > 0 {
		t := newTable(shown, d)
		t.fit(width - 1)
		for row := range bytes.Lines(t.bytes()) {
			line(bytes.TrimSuffix(row, []byte{'\n'}))
		}
	}
	if hidden > 0 {
		line([]byte("and " + plural(hidden, "more session")))
	}
	return append(out, eraseDown...)
}
