package traffic

import (
	"flag"
	"strings"
)

// Flags adds one for each field to the set; what the fields are is the default.
func (c *Client) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.Protocol, "protocol", c.Protocol, strings.Join(Protocols(), ", "))
	fs.StringVar(&c.Address, "address", c.Address, "host:port of the server")
	fs.Int64Var(&c.Transfer.Bytes, "bytes", c.Transfer.Bytes, "bytes of a transfer")
	fs.DurationVar(&c.Transfer.Duration, "duration", c.Transfer.Duration, "time that the server takes to send them")
	fs.DurationVar(&c.Transfer.Gap, "gap", c.Transfer.Gap, "time between two parts of it (default 50ms)")
	fs.IntVar(&c.Count, "count", c.Count, "transfers; 0: until SIGTERM")
	fs.IntVar(&c.Concurrency, "concurrency", c.Concurrency, "transfers at the same time")
	fs.DurationVar(&c.Pause, "pause", c.Pause, "pause of each worker between two transfers")
	fs.DurationVar(&c.Spread, "spread", c.Spread, "each transfer takes up to this much longer, at random")
	fs.DurationVar(&c.Stall, "stall", c.Stall, "give a transfer up after this long without a byte")
	fs.DurationVar(&c.Patience, "patience", c.Patience, "the server may take this long to be there")
}

// Args are the flags of a client like this one.
func (c Client) Args() []string {
	c.Defaults()
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	c.Flags(fs)
	var args []string
	fs.VisitAll(func(f *flag.Flag) { args = append(args, "-"+f.Name+"="+f.Value.String()) })
	return args
}
