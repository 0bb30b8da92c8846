package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completeTimeout is how long somebody waits for a word after a tab.
const completeTimeout = 3 * time.Second

// addWords completes a flag that takes one of a few words.
func addWords(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic("complete --" + flag + ": " + err.Error()) // the flag was made by the caller
	}
}

// completeStatus completes the nodes that have a helper, and pods.
func (p *plugin) completeStatus(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.Contains(begin, "/") {
		return p.completePods(cmd, args, begin)
	}
	names, directive := p.completeNodes(cmd, args, begin)
	if strings.HasPrefix("pod/", begin) {
		names = append(names, "pod/")
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return names, directive
}

// completePods completes pod/NAME: the pods that are terminating, or else all.
func (p *plugin) completePods(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	if !strings.Contains(begin, "/") {
		return []string{"pod/"}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return p.complete(cmd, begin, func(ctx context.Context, c *cluster) ([]string, error) {
		list, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		kind, _, _ := strings.Cut(begin, "/")
		var all, terminating []string
		for _, pod := range list.Items {
			word := kind + "/" + pod.Name
			if slices.Contains(args, word) {
				continue
			}
			all = append(all, word)
			if pod.DeletionTimestamp != nil {
				terminating = append(terminating, word)
			}
		}
		if len(terminating) > 0 {
			return terminating, nil
		}
		return all, nil
	})
}

func (p *plugin) completeNodes(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return p.complete(cmd, begin, func(ctx context.Context, c *cluster) ([]string, error) {
		helpers, err := p.helpers(ctx, c, "")
		var names []string
		for _, h := range helpers {
			names = append(names, h.node)
		}
		return names, err
	})
}

func (p *plugin) completeNamespaces(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	return p.complete(cmd, begin, func(ctx context.Context, c *cluster) ([]string, error) {
		list, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var names []string
		for _, n := range list.Items {
			names = append(names, n.Name)
		}
		return names, nil
	})
}

func (p *plugin) completeContexts(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	config, err := p.kube.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError | cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range config.Contexts {
		names = append(names, name)
	}
	return beginning(names, begin), cobra.ShellCompDirectiveNoFileComp
}

// complete asks the cluster for words; who may not ask gets none.
func (p *plugin) complete(cmd *cobra.Command, begin string, words func(context.Context, *cluster) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	defer cancel()
	c, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := words(ctx, c)
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return beginning(names, begin), cobra.ShellCompDirectiveNoFileComp
}

func beginning(names []string, begin string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begin) })
	slices.Sort(names)
	return names
}
