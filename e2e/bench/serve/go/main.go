// What the benchmark of the file server needs beside it: two servers to compare with, and the load.
package main

import (
	"fmt"
	"os"
)

func main() {
	command := map[string]func([]string) error{"files": serveFiles, "sendfile": serveSendfile, "load": load}
	if len(os.Args) < 2 || command[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: bench-serve files FOLDER | sendfile FOLDER | load [flags]")
		os.Exit(2)
	}
	if err := command[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
