package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/conndrain/conndrain/lifecycle"
)

// maxAnswer is the longest answer that is read: a few hundred drains with twenty
// sessions each are far less.
const maxAnswer = 64 << 20

// newStatus and newRelease ask the helper that runs in the same container. They
// are what `kubectl conndrain` runs there.
func newStatus() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print how the drains of this node stand, as JSON",
		Long: `Prints how the drains of this node stand, as one JSON object. It asks the helper that
runs in this container, and is what 'kubectl conndrain status' runs here.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "json" {
				return fmt.Errorf("--output %s: it is json; kubectl conndrain status prints a table", output)
			}
			return ask(cmd.Context(), socket, http.MethodGet, lifecycle.StatusPath, nil, cmd.OutOrStdout())
		},
	}
	addSocket(cmd, &socket, &output)
	return cmd
}

func newRelease() *cobra.Command {
	var socket, output, uid string
	var pods []string
	var request lifecycle.ReleaseRequest
	cmd := &cobra.Command{
		Use:   "release (--pod NAMESPACE/NAME ... | --all)",
		Short: "Let pods of this node go now",
		Long: `Lets pods of this node go now, whatever sessions they still have, and prints how they
stood, as one JSON object. It asks the helper that runs in this container, and is what
'kubectl conndrain release' runs here.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "json" {
				return fmt.Errorf("--output %s: it is json; kubectl conndrain release prints text", output)
			}
			var err error
			if request.Pods, err = refs(pods, uid); err != nil {
				return err
			}
			if request.All == (len(request.Pods) > 0) {
				return errors.New("say what to release: --pod NAMESPACE/NAME or --all")
			}
			body, err := json.Marshal(request)
			if err != nil {
				return fmt.Errorf("write request: %w", err)
			}
			return ask(cmd.Context(), socket, http.MethodPost, lifecycle.ReleasePath, body, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&pods, "pod", nil, "a pod to release, as NAMESPACE/NAME")
	flags.StringVar(&uid, "uid", "", "the UID of that one pod: another one of its name is left alone")
	flags.BoolVar(&request.All, "all", false, "all pods of the node")
	flags.StringVar(&request.Namespace, "namespace", "", "with --all, only those of a namespace")
	flags.StringVar(&request.By, "by", "", "who releases them, for the Event")
	flags.StringVar(&request.Why, "reason", "", "why, for the Event")
	addSocket(cmd, &socket, &output)
	return cmd
}

func addSocket(cmd *cobra.Command, socket, output *string) {
	cmd.Flags().StringVar(socket, "socket", lifecycle.LocalSocket, "where the helper answers")
	cmd.Flags().StringVarP(output, "output", "o", "json", "json")
}

func refs(pods []string, uid string) ([]lifecycle.PodRef, error) {
	if uid != "" && len(pods) != 1 {
		return nil, errors.New("--uid goes with one --pod")
	}
	var all []lifecycle.PodRef
	for _, text := range pods {
		namespace, name, ok := strings.Cut(text, "/")
		if !ok || namespace == "" || name == "" {
			return nil, fmt.Errorf("--pod %s: write NAMESPACE/NAME", text)
		}
		all = append(all, lifecycle.PodRef{Namespace: namespace, Name: name, UID: uid})
	}
	return all, nil
}

// ask sends a request to the helper and writes its answer to out as it is.
func ask(ctx context.Context, socket, method, path string, body []byte, out io.Writer) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://helper"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("ask the helper: %w (it answers once it has started; without a volume at /run/conndrain it never does, and says so in its log)", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the helper's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the helper answers %s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	_, err = out.Write(answer)
	return err
}
