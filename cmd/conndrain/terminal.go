package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// terminal is what is known of the screen that a writer leads to.
type terminal struct {
	file *os.File
}

// terminalOf returns the terminal behind a writer, or nil where there is none or
// one that cannot move its cursor.
func terminalOf(w io.Writer) *terminal {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return &terminal{file: f}
}

// size is the screen's width and height in characters, asked for each time
// because people resize it.
func (t *terminal) size() (width, height int) {
	if t.file != nil {
		if w, h, err := term.GetSize(int(t.file.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}

// What moves the cursor and clears, on every terminal in use.
const (
	eraseLine = "\r\x1b[K" // this line
	eraseRest = "\x1b[K"   // from here to the line's end
	eraseDown = "\x1b[J"   // from here to the screen's end
	goHome    = "\x1b[H"   // to the screen's first character
)
