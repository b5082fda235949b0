// Command quic-go-client is an HTTP client for the end-to-end tests: quic-go for HTTP/3, Go's own
// net/http for HTTP/1.1 and HTTP/2, with one interface.
//
// It reads one JSON round per line from standard input and answers each with one JSON line on
// standard output. Connections live as long as the process does, so a test can send a round,
// manipulate the server, and send another round over the same connection.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// field is a name and a value: header and trailer fields keep their order and duplicates.
type field [2]string

// round is one line of input: the same request, count times, all at once.
type round struct {
	URL      string  `json:"url"`
	Method   string  `json:"method"`
	Headers  []field `json:"headers"`
	Trailers []field `json:"trailers"`
	// BodyFile is sent as the request's body. With BodyLengthUnknown no content-length is sent.
	BodyFile          string `json:"body_file"`
	BodyLengthUnknown bool   `json:"body_length_unknown"`
	Count             int    `json:"count"`
	TimeoutSeconds    int    `json:"timeout_seconds"`
	// PrintHead prints {"status": …} once the head has arrived and before the body is read. Only for a count of one.
	PrintHead bool `json:"print_head"`
	// Hold waits for another line of input before the body is read. Only for a count of one.
	Hold bool `json:"hold"`
	// Reconnect waits for a session ticket and closes the HTTP/3 connection first; the TLS session is kept for the next one.
	Reconnect bool `json:"reconnect"`
	// Migrate continues over another port of this machine once the head has arrived. Only for a count of one, with -can-migrate.
	Migrate bool `json:"migrate"`
}

// result is one line of output.
type result struct {
	// Connections counts the connections that this process has opened so far.
	Connections int64      `json:"connections"`
	Responses   []response `json:"responses"`
	// QUIC is the state of the latest HTTP/3 connection.
	QUIC *quicState `json:"quic,omitempty"`
}

type quicState struct {
	Version   string `json:"version"`
	Resumed   bool   `json:"resumed"`
	EarlyData bool   `json:"early_data"`
	// KeyUpdates counts the key updates that this side started, on all connections.
	KeyUpdates int64 `json:"key_updates"`
}

type response struct {
	Status   int     `json:"status"`
	Protocol string  `json:"protocol"`
	Headers  []field `json:"headers"`
	Trailers []field `json:"trailers"`
	Size     int64   `json:"size"`
	SHA256   string  `json:"sha256"`
	// Body is omitted if it is larger than maxPrintedBody.
	Body  []byte `json:"body,omitempty"`
	Error string `json:"error,omitempty"`
}

const maxPrintedBody = 64 << 10

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	version := flag.String("http", "3", "HTTP version: 1.1, 2 or 3")
	caFile := flag.String("ca", "", "PEM file with the certificates to trust (required)")
	serverName := flag.String("server-name", "", "name to look for in the certificate, instead of the URL's host")
	idleTimeout := flag.Duration("idle-timeout", 30*time.Second, "idle time-out of a QUIC connection")
	offerV2 := flag.Bool("offer-v2", false, "start with QUIC version 2, and take version 1 if the server wants it")
	canMigrate := flag.Bool("can-migrate", false, "use connection IDs over QUIC, so that a round can migrate")
	flag.Parse()

	pem, err := os.ReadFile(*caFile)
	if err != nil {
		return fmt.Errorf("reading -ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate", *caFile)
	}
	client, err := newClient(*version, &tls.Config{
		RootCAs:            roots,
		ServerName:         *serverName,
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}, quicOptions{*idleTimeout, *offerV2, *canMigrate})
	if err != nil {
		return err
	}

	output := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked round
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return fmt.Errorf("reading a round: %w", err)
		}
		if asked.Reconnect {
			ctx, cancel := asked.context()
			err := client.reconnect(ctx)
			cancel()
			if err != nil {
				return err
			}
		}
		responses := asked.run(client, output, lines)
		if err := output.Encode(result{client.connections.Load(), responses, client.state()}); err != nil {
			return err
		}
	}
	// A client that exits closes its connections; a killed one does not.
	return errors.Join(lines.Err(), client.close())
}

func (asked round) run(client *client, heads *json.Encoder, lines *bufio.Scanner) []response {
	responses := make([]response, max(asked.Count, 1))
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range responses {
		running.Go(func() {
			<-start
			responses[i] = asked.one(client, heads, lines)
		})
	}
	close(start)
	running.Wait()
	return responses
}

func (asked round) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(max(asked.TimeoutSeconds, 1))*time.Second)
}

func (asked round) one(client *client, heads *json.Encoder, lines *bufio.Scanner) response {
	ctx, cancel := asked.context()
	defer cancel()
	got, err := asked.send(ctx, client, heads, lines)
	if err != nil {
		got.Error = err.Error()
	}
	return got
}

func (asked round) send(ctx context.Context, client *client, heads *json.Encoder, lines *bufio.Scanner) (response, error) {
	var got response
	request, err := asked.request(ctx)
	if err != nil {
		return got, err
	}
	answer, err := client.transport.RoundTrip(request)
	if err != nil {
		return got, err
	}
	defer answer.Body.Close()
	got.Status = answer.StatusCode
	got.Protocol = answer.Proto
	got.Headers = fields(answer.Header)
	if asked.PrintHead {
		if err := heads.Encode(map[string]int{"status": got.Status}); err != nil {
			return got, err
		}
	}
	if asked.Hold && !lines.Scan() {
		return got, errors.New("the input ended before the round went on")
	}
	if asked.Migrate {
		if err := client.migrate(ctx); err != nil {
			return got, err
		}
	}
	hash := sha256.New()
	var printed bytes.Buffer
	got.Size, err = io.Copy(io.MultiWriter(hash, &limited{&printed}), answer.Body)
	got.SHA256 = hex.EncodeToString(hash.Sum(nil))
	if got.Size <= maxPrintedBody {
		got.Body = printed.Bytes()
	}
	got.Trailers = fields(answer.Trailer)
	return got, err
}

func (asked round) request(ctx context.Context) (*http.Request, error) {
	var body io.Reader
	var length int64
	if asked.BodyFile != "" {
		file, err := os.Open(asked.BodyFile)
		if err != nil {
			return nil, err
		}
		facts, err := file.Stat()
		if err != nil {
			return nil, err
		}
		body, length = file, facts.Size()
	}
	request, err := http.NewRequestWithContext(ctx, asked.Method, asked.URL, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.ContentLength = length
		// For a connection that closes before the request was sent.
		request.GetBody = func() (io.ReadCloser, error) { return os.Open(asked.BodyFile) }
		if asked.BodyLengthUnknown {
			request.ContentLength = -1
		}
	}
	for _, header := range asked.Headers {
		request.Header.Add(header[0], header[1])
	}
	if len(asked.Trailers) > 0 {
		if body == nil {
			return nil, errors.New("a round with trailers needs a body_file")
		}
		request.Trailer = http.Header{}
		for _, trailer := range asked.Trailers {
			request.Trailer.Add(trailer[0], trailer[1])
		}
		request.ContentLength = -1
	}
	return request, nil
}

func fields(header http.Header) []field {
	all := []field{}
	for name, values := range header {
		for _, value := range values {
			all = append(all, field{name, value})
		}
	}
	return all
}

// limited keeps the first maxPrintedBody bytes and reports the rest as written.
type limited struct{ buffer *bytes.Buffer }

func (l *limited) Write(bytes []byte) (int, error) {
	room := max(maxPrintedBody-l.buffer.Len(), 0)
	l.buffer.Write(bytes[:min(room, len(bytes))])
	return len(bytes), nil
}
