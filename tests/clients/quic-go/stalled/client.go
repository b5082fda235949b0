package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// load is what the client does.
type load struct {
	version       string
	url           string
	uploads       int
	downloads     int
	bytes         int64
	perConnection int
	window        int64
	socketBytes   int64
	tls           *tls.Config
	released      <-chan struct{}

	counts
}

type counts struct {
	// sent counts bytes of uploads that the protocol has accepted.
	sent      atomic.Int64
	received  atomic.Int64
	heads     atomic.Int64
	refused   atomic.Int64
	retried   atomic.Int64
	completed atomic.Int64
}

// progress is one line of output.
type progress struct {
	// Sent and Received are bytes of content.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Heads counts downloads whose response has begun.
	Heads int64 `json:"heads"`
	// Refused counts 503 responses, and Retried the connections that failed; the request is sent again each time.
	Refused   int64 `json:"refused"`
	Retried   int64 `json:"retried"`
	Completed int64 `json:"completed"`
}

func (l *load) progress() progress {
	return progress{
		l.sent.Load(), l.received.Load(), l.heads.Load(), l.refused.Load(), l.retried.Load(), l.completed.Load(),
	}
}

// pause is the time before a request is sent again on another connection.
const pause = 500 * time.Millisecond

func (l *load) run() error {
	total := l.uploads + l.downloads
	failures := make([]error, total)
	var running sync.WaitGroup
	var transport http.RoundTripper
	for number := range total {
		if number%l.perConnection == 0 {
			transport = l.transport()
			l.connect(transport)
		}
		own := transport
		running.Go(func() {
			// Uploads and downloads alternate.
			isUpload := number%2 == 0 && number/2 < l.uploads || number/2 >= l.downloads
			if err := l.untilDone(own, number, isUpload); err != nil {
				failures[number] = fmt.Errorf("request %d: %w", number, err)
			}
		})
	}
	running.Wait()
	return errors.Join(failures...)
}

// connect opens the transport's connection: at its first requests, Go's HTTP/2 opens one for each of them. If that
// fails, the requests try again.
func (l *load) connect(transport http.RoundTripper) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url+"/healthy", nil)
	if err != nil {
		return
	}
	if response, err := transport.RoundTrip(request); err == nil {
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

func (l *load) transport() http.RoundTripper {
	if l.version == "3" {
		return &http3.Transport{
			TLSClientConfig: l.tls.Clone(),
			QUICConfig: &quic.Config{
				MaxIdleTimeout:                 5 * time.Minute,
				KeepAlivePeriod:                5 * time.Second,
				InitialStreamReceiveWindow:     uint64(l.window),
				MaxStreamReceiveWindow:         uint64(l.window),
				InitialConnectionReceiveWindow: uint64(l.window) * uint64(l.perConnection),
				MaxConnectionReceiveWindow:     uint64(l.window) * uint64(l.perConnection) * 2,
			},
		}
	}
	transport := &http.Transport{
		TLSClientConfig:    l.tls.Clone(),
		DisableCompression: true,
		Protocols:          new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:     int(l.window),
			MaxReceiveBufferPerConnection: int(l.window) * max(l.perConnection, 2),
			StrictMaxConcurrentRequests:   true,
		},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil || l.socketBytes == 0 {
				return connection, err
			}
			return &deafConnection{Conn: connection, left: l.socketBytes, released: l.released}, nil
		},
	}
	if l.version == "1.1" {
		transport.Protocols.SetHTTP1(true)
	} else {
		transport.Protocols.SetHTTP2(true)
	}
	return transport
}

// deafConnection reads so many bytes, and the rest once it is released.
type deafConnection struct {
	net.Conn
	left     int64
	released <-chan struct{}
}

func (c *deafConnection) Read(buffer []byte) (int, error) {
	if c.left <= 0 {
		<-c.released
	}
	count, err := c.Conn.Read(buffer)
	c.left -= int64(count)
	return count, err
}

// untilDone sends the request again as long as the server is short of memory.
func (l *load) untilDone(transport http.RoundTripper, number int, isUpload bool) error {
	for {
		after, err := l.once(transport, number, isUpload)
		switch {
		case err != nil && errors.Is(err, errWrong):
			return err
		case err != nil:
			l.retried.Add(1)
			after = pause
		case after == 0:
			l.completed.Add(1)
			return nil
		}
		time.Sleep(after)
	}
}

var errWrong = errors.New("wrong content")

// once returns how long to wait before the request is sent again; 0 if it is done.
func (l *load) once(transport http.RoundTripper, number int, isUpload bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	method, path, body := http.MethodGet, fmt.Sprintf("/download/%d/%d", number, l.bytes), io.Reader(nil)
	if isUpload {
		method, path, body = http.MethodPost, "/upload", &counted{newContent(number, l.bytes), &l.sent}
	}
	request, err := http.NewRequestWithContext(ctx, method, l.url+path, body)
	if err != nil {
		return 0, err
	}
	if isUpload {
		request.ContentLength = l.bytes
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		l.refused.Add(1)
		seconds, err := time.ParseDuration(response.Header.Get("retry-after") + "s")
		if err != nil || seconds <= 0 {
			return 0, fmt.Errorf("%w: 503 without retry-after", errWrong)
		}
		return seconds, nil
	default:
		return 0, fmt.Errorf("%w: status %s", errWrong, response.Status)
	}
	if isUpload {
		return 0, l.compareHash(response.Body, number)
	}
	l.heads.Add(1)
	<-l.released
	return 0, l.compare(response.Body, number)
}

func (l *load) compareHash(body io.Reader, number int) error {
	found, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	hash := sha256.New()
	io.Copy(hash, newContent(number, l.bytes))
	if wanted := hex.EncodeToString(hash.Sum(nil)); wanted != string(found) {
		return fmt.Errorf("%w: upload arrived as %q, not %q", errWrong, found, wanted)
	}
	return nil
}

func (l *load) compare(body io.Reader, number int) error {
	expected := newContent(number, l.bytes)
	found, wanted := make([]byte, 32<<10), make([]byte, 32<<10)
	for at := int64(0); ; {
		count, err := body.Read(found)
		l.received.Add(int64(count))
		if _, ends := io.ReadFull(expected, wanted[:count]); ends != nil || !bytes.Equal(found[:count], wanted[:count]) {
			return fmt.Errorf("%w: download differs after byte %d", errWrong, at)
		}
		at += int64(count)
		if err == io.EOF && at == l.bytes {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after byte %d: %w", at, err)
		}
	}
}

// counted counts what is read of an upload.
type counted struct {
	*content
	count *atomic.Int64
}

func (c *counted) Read(buffer []byte) (int, error) {
	count, err := c.content.Read(buffer)
	c.count.Add(int64(count))
	return count, err
}
