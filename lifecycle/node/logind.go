package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/godbus/dbus/v5"
)

// DefaultSystemBus is the socket of the host's system D-Bus, whose directory is
// mounted into the helper.
const DefaultSystemBus = "/run/dbus/system_bus_socket"

const (
	logindName       = "org.freedesktop.login1"
	logindPath       = "/org/freedesktop/login1"
	logindPreparing  = "org.freedesktop.login1.Manager"
	propertyOfLogind = "PreparingForShutdown"
)

var errNoBus = errors.New("no system bus is set")

// preparingForShutdown asks logind, over the bus whose socket this is, whether a
// shutdown has begun. It blocks until there is an answer or ctx ends. It needs the
// right to connect to the bus, which uid 0 has.
func preparingForShutdown(ctx context.Context, socket string) (bool, error) {
	if socket == "" {
		return false, errNoBus
	}
	// The end of ctx closes the connection, which ends a greeting that hangs too.
	conn, err := dbus.Connect("unix:path="+dbus.EscapeBusAddressValue(socket), dbus.WithContext(ctx))
	if err != nil {
		return false, fmt.Errorf("connect to system bus: %w", err)
	}
	defer conn.Close()
	var answer dbus.Variant
	err = conn.Object(logindName, logindPath).
		CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", dbus.FlagNoAutoStart, logindPreparing, propertyOfLogind).
		Store(&answer)
	if err != nil {
		return false, fmt.Errorf("ask logind: %w", err)
	}
	preparing, ok := answer.Value().(bool)
	if !ok {
		return false, fmt.Errorf("ask logind: %s is a %s", propertyOfLogind, answer.Signature())
	}
	return preparing, nil
}
