// Command quic-go-server is a server that nobody of this project wrote, for the tests of `pronghorn get`: quic-go
// for HTTP/3, Go's own net/http for HTTP/1.1 and HTTP/2, on one port.
//
// It prints one line, `listening on https://127.0.0.1:PORT (h1, h2, h3)`, and runs until it is killed.
package main

import (
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

	"github.com/quic-go/quic-go/http3"
)

func main() {
	cert := flag.String("cert", "", "certificate chain in PEM form")
	key := flag.String("key", "", "private key in PEM form")
	flag.Parse()
	if err := serve(*cert, *key); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(cert, key string) error {
	identity, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{identity}}
	tcp, udp, err := listen()
	if err != nil {
		return err
	}
	failed := make(chan error)
	quic := &http3.Server{Handler: routes(), TLSConfig: http3.ConfigureTLSConfig(config.Clone())}
	go func() { failed <- quic.Serve(udp) }()
	server := &http.Server{Handler: routes(), TLSConfig: config}
	go func() { failed <- server.ServeTLS(tcp, "", "") }()
	fmt.Fprintf(os.Stderr, "listening on https://%s (h1, h2, h3)\n", tcp.Addr())
	return <-failed
}

// listen takes a TCP port and the UDP port of the same number; another process may hold the latter.
func listen() (net.Listener, net.PacketConn, error) {
	var err error
	for range 20 {
		var tcp net.Listener
		tcp, err = net.Listen("tcp", "127.0.0.1:0")
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

// describe answers with the request as it arrived.
func describe(w http.ResponseWriter, r *http.Request) {
	hash := sha256.New()
	size, err := io.Copy(hash, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("content-type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"protocol": r.Proto,
		"method":   r.Method,
		"host":     r.Host,
		"path":     r.RequestURI,
		"headers":  r.Header,
		"size":     size,
		"sha256":   hex.EncodeToString(hash.Sum(nil)),
	})
}
