// Command quic-go-server is an independent server for the tests of `pronghorn get`: quic-go for HTTP/3, Go's own net/http for HTTP/1.1 and HTTP/2, on one port.
//
// It prints one line, `listening on https://HOST:PORT (h1, h2, h3)`, and runs until it is killed.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

func main() {
	cert := flag.String("cert", "", "certificate chain in PEM form")
	key := flag.String("key", "", "private key in PEM form")
	host := flag.String("host", "127.0.0.1", "IP address to listen at")
	retry := flag.Bool("retry", false, "have each client prove its address (QUIC Retry)")
	flag.Parse()
	if err := serve(*cert, *key, *host, *retry); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(cert, key, host string, retry bool) error {
	identity, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{identity}}
	tcp, udp, err := listen(host)
	if err != nil {
		return err
	}
	failed := make(chan error)
	http3Server := &http3.Server{
		Handler: routes(),
		ConnContext: func(ctx context.Context, connection *quic.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, connection)
		},
	}
	transport := &quic.Transport{Conn: udp, VerifySourceAddress: func(net.Addr) bool { return retry }}
	listener, err := transport.ListenEarly(http3.ConfigureTLSConfig(config.Clone()), &quic.Config{
		Allow0RTT: true,
		// quic-go reports key updates only as qlog events.
		Tracer: func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace { return recorder{} },
	})
	if err != nil {
		return err
	}
	go func() { failed <- http3Server.ServeListener(listener) }()
	server := &http.Server{Handler: routes(), TLSConfig: config}
	go func() { failed <- server.ServeTLS(tcp, "", "") }()
	fmt.Fprintf(os.Stderr, "listening on https://%s (h1, h2, h3)\n", tcp.Addr())
	return <-failed
}

// connectionKey is the key of the QUIC connection in a request's context.
type connectionKey struct{}

// tookEarlyData returns whether early data was accepted on a request's connection.
func tookEarlyData(r *http.Request) bool {
	connection, ok := r.Context().Value(connectionKey{}).(*quic.Conn)
	return ok && connection.ConnectionState().Used0RTT
}

// keyUpdates counts the key updates that this side started, on all connections.
var keyUpdates atomic.Int64

type recorder struct{}

func (r recorder) AddProducer() qlogwriter.Recorder { return r }

func (recorder) RecordEvent(event qlogwriter.Event) {
	update, ok := event.(qlog.KeyUpdated)
	if ok && update.Trigger == qlog.KeyUpdateLocal && update.KeyType == qlog.KeyTypeServer1RTT {
		keyUpdates.Add(1)
	}
}

func (recorder) Close() error { return nil }

// listen binds a TCP port and the UDP port of the same number, which another process may use.
func listen(host string) (net.Listener, net.PacketConn, error) {
	var err error
	for range 20 {
		var tcp net.Listener
		tcp, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, nil, err
		}
		var udp net.PacketConn
		udp, err = net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return tcp, udp, nil
		}
		tcp.Close()
	}
	return nil, nil, err
}

func routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/request", describe)
	// A body from a seed, in chunks, without a length.
	mux.HandleFunc("/bytes/{count}", func(w http.ResponseWriter, r *http.Request) {
		count, err := strconv.ParseInt(r.PathValue("count"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.CopyN(w, rand.New(rand.NewSource(1)), count)
	})
	mux.HandleFunc("/redirect/{left}", func(w http.ResponseWriter, r *http.Request) {
		left, _ := strconv.Atoi(r.PathValue("left"))
		target := "/request"
		if left > 1 {
			target = fmt.Sprintf("/redirect/%d", left-1)
		}
		http.Redirect(w, r, target, http.StatusFound)
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
		_, _ = fmt.Fprintln(w, "status", code)
	})
	// The connection or stream breaks after half of the promised body.
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-length", "200000")
		_, _ = w.Write(make([]byte, 100000))
		panic(http.ErrAbortHandler)
	})
	return mux
}

// describe responds with the request as received.
func describe(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	size, err := io.Copy(hash, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("content-type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"protocol":    r.Proto,
		"resumed":     r.TLS.DidResume,
		"early":       tookEarlyData(r),
		"key_updates": keyUpdates.Load(),
		"method":      r.Method,
		"host":        r.Host,
		"path":        r.RequestURI,
		"headers":     r.Header,
		"size":        size,
		"sha256":      hex.EncodeToString(hash.Sum(nil)),
	})
}
