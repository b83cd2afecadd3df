package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
)

// serveFiles is http.FileServer and nothing else.
func serveFiles(args []string) error {
	listener, err := listen()
	if err != nil {
		return err
	}
	return http.Serve(listener, http.FileServer(http.Dir(args[0])))
}

// serveSendfile is the floor: it reads the request line, opens the file, and lets the kernel send it. No checks, no HTTP library.
func serveSendfile(args []string) error {
	listener, err := listen()
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			reader := bufio.NewReader(conn)
			for sendOne(conn, reader, args[0]) == nil {
			}
		}()
	}
}

func sendOne(conn net.Conn, reader *bufio.Reader, folder string) error {
	line, err := reader.ReadBytes('\n')
	if err != nil {
		return err
	}
	words := bytes.Fields(line)
	if len(words) < 2 {
		return io.ErrUnexpectedEOF
	}
	name := filepath.Join(folder, filepath.Clean("/"+string(words[1])))
	for len(bytes.TrimSpace(line)) > 0 {
		if line, err = reader.ReadBytes('\n'); err != nil {
			return err
		}
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", info.Size()); err != nil {
		return err
	}
	_, err = io.Copy(conn, file) // sendfile(2)
	return err
}

func listen() (net.Listener, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Printf("listening on %d\n", listener.Addr().(*net.TCPAddr).Port)
	}
	return listener, err
}
