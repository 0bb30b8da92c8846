package node

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// defaultWindow is taken where nobody says how long the kubelet gives its pods.
const defaultWindow = 30 * time.Second

// maxKubeletConfig is the size of the largest configuration that is read.
const maxKubeletConfig = 1 << 20

// shutdownWindow is how long the kubelet gives a pod of this priority when the node
// shuts down: what the helper is told, else what the kubelet's configuration says,
// else the default. The file is read each time, which is once for each pod that
// ends with its node.
func shutdownWindow(c Config, priority int32) time.Duration {
	if c.ShutdownWindow > 0 {
		return c.ShutdownWindow
	}
	if c.KubeletConfig == "" {
		return defaultWindow
	}
	k, err := readKubeletConfig(c.KubeletConfig)
	if err != nil {
		c.Logger.Warn("the kubelet's shutdown window is unknown: set --shutdown-window", "err", err, "seconds", defaultWindow.Seconds())
		return defaultWindow
	}
	if w := k.window(priority); w > 0 {
		return w
	}
	return defaultWindow
}

// kubeletConfig is what a KubeletConfiguration says of a node's shutdown.
type kubeletConfig struct {
	Total      metav1.Duration `json:"shutdownGracePeriod"`
	Critical   metav1.Duration `json:"shutdownGracePeriodCriticalPods"`
	ByPriority []priorityGroup `json:"shutdownGracePeriodByPodPriority"`
}

type priorityGroup struct {
	Priority int32 `json:"priority"`
	Seconds  int64 `json:"shutdownGracePeriodSeconds"`
}

func readKubeletConfig(path string) (kubeletConfig, error) {
	var k kubeletConfig
	f, err := os.Open(path)
	if err != nil {
		return k, fmt.Errorf("open kubelet's config: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKubeletConfig))
	if err != nil {
		return k, fmt.Errorf("read kubelet's config: %w", err)
	}
	if err := yaml.Unmarshal(b, &k); err != nil {
		return k, fmt.Errorf("read kubelet's config: %w", err)
	}
	return k, nil
}

// systemCritical is the lowest priority of the pods that a node cannot do without
// (scheduling.SystemCriticalPriority).
const systemCritical = 2_000_000_000

// window is what the kubelet's shutdown manager gives a pod of this priority, as
// groupByPriority and migrateConfig in pkg/kubelet/nodeshutdown (1.37) have it: the
// group of the highest priority that is not above the pod's, or the lowest group.
// It is 0 where that manager is off.
func (k kubeletConfig) window(priority int32) time.Duration {
	groups := slices.Clone(k.ByPriority)
	if len(groups) == 0 {
		if priority >= systemCritical {
			return k.Critical.Duration
		}
		return k.Total.Duration - k.Critical.Duration
	}
	slices.SortFunc(groups, func(a, b priorityGroup) int { return cmp.Compare(a.Priority, b.Priority) })
	seconds := groups[0].Seconds
	for _, g := range groups {
		if g.Priority <= priority {
			seconds = g.Seconds
		}
	}
	return time.Duration(min(max(seconds, 0), int64(24*time.Hour/time.Second))) * time.Second
}
