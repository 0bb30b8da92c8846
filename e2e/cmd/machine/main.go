// Command machine is the supervisor of one machine of a test cluster: package cluster starts it with the machine's folder.
package main

import (
	"fmt"
	"os"

	"github.com/conndrain/conndrain/e2e/machine"
)

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: machine FOLDER (package cluster runs this; by hand use make cluster-up)")
		return 2
	}
	spec, err := machine.Open(os.Args[1])
	if err == nil {
		err = machine.Run(spec)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		return 1
	}
	return 0
}
