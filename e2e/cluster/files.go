package cluster

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// files are the trees that machines get over Debian's: every machine, the control plane, a node. Each file is a template
// of fileData.
//
//go:embed files
var files embed.FS

// fileData is what the templates are filled with.
type fileData struct {
	Options
	Name       string // of this machine
	NodeIPs    []string
	Pods       []string // networks of this node's pods
	AllPods    []string
	Services   []string
	Anywhere   []string
	APIServer  string
	DNS        string
	PauseImage string
	Hosts      []hostEntry
}

type hostEntry struct{ Address, Name string }

var templateFuncs = template.FuncMap{
	"auditLog": func() string { return AuditLog },
	"join":     func(all []string) string { return strings.Join(all, ",") },
	"json": func(v any) (string, error) {
		b, err := json.Marshal(v)
		return string(b), err
	},
	"seconds": func(d time.Duration) int { return int(d.Seconds()) },
	"gates": func(gates map[string]bool) string {
		var all []string
		for _, name := range slices.Sorted(maps.Keys(gates)) {
			all = append(all, name+"="+strconv.FormatBool(gates[name]))
		}
		return strings.Join(all, ",")
	},
}

// writeFiles fills the templates of the trees into root.
func writeFiles(root string, data fileData, trees ...string) error {
	for _, tree := range trees {
		top := path.Join("files", tree)
		err := fs.WalkDir(files, top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			t, err := template.New(path.Base(name)).Funcs(templateFuncs).ParseFS(files, name)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := t.Execute(&b, data); err != nil {
				return err
			}
			return writeTreeFile(filepath.Join(root, strings.TrimPrefix(name, top)), b.Bytes())
		})
		if err != nil {
			return fmt.Errorf("write files of %s: %w", data.Name, err)
		}
	}
	return nil
}

// writeTreeFile writes a file with the rights that its place asks for.
func writeTreeFile(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(filepath.Dir(name), "/sbin") {
		mode = 0o755
	}
	return os.WriteFile(name, content, mode)
}

// enable makes the units start when the machine boots and gives the components among them their log and their restarts.
func enable(root string, components []string) error {
	units := filepath.Join(root, "etc/systemd/system")
	links := map[string]string{"sysinit.target.wants/host-view.service": "../host-view.service"}
	for _, name := range components {
		links["multi-user.target.wants/"+name+".service"] = "../" + name + ".service"
		links[name+".service.d/component.conf"] = "../component.conf"
	}
	for _, name := range unwanted {
		links[name] = "/dev/null"
	}
	for name, target := range links {
		name = filepath.Join(units, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return fmt.Errorf("enable units: %w", err)
		}
		if err := os.Symlink(target, name); err != nil {
			return fmt.Errorf("enable units: %w", err)
		}
	}
	return nil
}

// unwanted are Debian's units that would only cost time or wake up in the middle of a test.
var unwanted = []string{
	"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
	"fstrim.timer", "systemd-tmpfiles-clean.timer", "console-getty.service", "getty.target",
	"systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
}
