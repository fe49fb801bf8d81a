// Command pause is the process of a pod's sandbox: it keeps the pod's namespaces open until the kubelet
// stops it, and reaps the orphans of pods that share a process namespace.
package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
)

func reapOrphans() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reapOrphans()
	}
}
