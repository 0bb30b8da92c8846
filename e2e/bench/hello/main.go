// Command hello is as little as a static Go program can do: the peer for the start of another one.
package main

import "os"

func main() { _, _ = os.Stdout.WriteString("hello\n") }
