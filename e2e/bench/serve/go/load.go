package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

type result struct {
	Requests          int     `json:"requests"`
	RequestsPerSecond float64 `json:"requestsPerSecond"`
	BytesPerSecond    float64 `json:"bytesPerSecond"`
	P50Us             float64 `json:"p50Us"`
	P99Us             float64 `json:"p99Us"`
}

// load asks for one file again and again over kept connections. The first and the last body of each connection are hashed, the length of
// every one is looked at; one wrong answer and there is no result. It does as little as it can for a request, to be no part of the figures.
func load(args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	address := flags.String("address", "", "host:port")
	path := flags.String("path", "", "what to ask for")
	digest := flags.String("sha256", "", "of the body, in hex")
	connections := flags.Int("connections", 8, "how many at once")
	duration := flags.Duration("duration", 2*time.Second, "how long")
	if err := flags.Parse(args); err != nil {
		return err
	}
	clients := make([]*client, *connections)
	for i := range clients {
		conn, err := net.Dial("tcp", *address)
		if err != nil {
			return err
		}
		request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\n\r\n", *path, *address)
		reader := bufio.NewReaderSize(conn, 64*1024)
		clients[i] = &client{conn: conn, reader: reader, request: []byte(request), digest: *digest}
		if err := clients[i].checked(); err != nil {
			return err
		}
	}
	start := time.Now()
	results := make(chan error, len(clients))
	for _, each := range clients {
		go func() { results <- each.repeat(start.Add(*duration)) }()
	}
	var failed error
	for range clients {
		failed = errors.Join(failed, <-results)
	}
	seconds := time.Since(start).Seconds()
	if failed != nil {
		return failed
	}
	return report(clients, seconds)
}

func report(clients []*client, seconds float64) error {
	var took []time.Duration
	var sent int64
	for _, each := range clients {
		if err := each.checked(); err != nil {
			return err
		}
		took = append(took, each.took...)
		sent += each.bytes
	}
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	at := func(part float64) float64 { return float64(took[int(part*float64(len(took)-1))].Nanoseconds()) / 1e3 }
	return json.NewEncoder(os.Stdout).Encode(result{
		Requests:          len(took),
		RequestsPerSecond: float64(len(took)) / seconds,
		BytesPerSecond:    float64(sent) / seconds,
		P50Us:             at(0.5),
		P99Us:             at(0.99),
	})
}

var lengthHeader = []byte("Content-Length:")

type client struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
	digest  string
	size    int64
	buffer  [256 * 1024]byte
	took    []time.Duration
	bytes   int64
}

func (c *client) repeat(end time.Time) error {
	for before := time.Now(); before.Before(end); {
		size, err := c.ask(nil)
		if err != nil {
			return err
		}
		if size != c.size {
			return fmt.Errorf("%d bytes in place of %d", size, c.size)
		}
		now := time.Now()
		c.took = append(c.took, now.Sub(before))
		c.bytes += size
		before = now
	}
	return nil
}

func (c *client) checked() error {
	sum := sha256.New()
	size, err := c.ask(sum)
	if err != nil {
		return err
	}
	if actual := hex.EncodeToString(sum.Sum(nil)); actual != c.digest {
		return fmt.Errorf("the body has sha256 %s in place of %s", actual, c.digest)
	}
	c.size = size
	return nil
}

func (c *client) ask(sum hash.Hash) (int64, error) {
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	size, err := c.head()
	if err != nil {
		return 0, err
	}
	for left := size; left > 0; {
		n, err := c.reader.Read(c.buffer[:min(left, int64(len(c.buffer)))])
		if err != nil {
			return 0, err
		}
		if sum != nil {
			sum.Write(c.buffer[:n])
		}
		left -= int64(n)
	}
	return size, nil
}

// head reads the status line and the headers and gives the length of the body.
func (c *client) head() (int64, error) {
	status, err := c.reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return 0, fmt.Errorf("answered %q", status)
	}
	size := int64(-1)
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		if len(line) > len(lengthHeader) && bytes.EqualFold(line[:len(lengthHeader)], lengthHeader) {
			if size, err = strconv.ParseInt(strings.TrimSpace(string(line[len(lengthHeader):])), 10, 64); err != nil {
				return 0, err
			}
		}
	}
	if size < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return size, nil
}
