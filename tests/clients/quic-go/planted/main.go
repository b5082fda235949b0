// Command planted serves a folder over HTTP/1.1, 2 and 3 with a fault that is known, for tests of whether the lab finds it:
// an answer over HTTP/2 comes late, or HTTP/3 is announced and nobody is there.
//
// It prints one line, `listening on https://HOST:PORT`, and runs until SIGTERM.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/quic-go/quic-go/http3"
)

func main() {
	root := flag.String("root", ".", "folder to serve")
	listen := flag.String("listen", "127.0.0.1:8443", "address to listen at")
	cert := flag.String("cert", "", "certificate chain in PEM form")
	key := flag.String("key", "", "private key in PEM form")
	delayH2 := flag.Duration("delay-h2", 0, "wait so long before each answer over HTTP/2")
	noQUIC := flag.Bool("no-quic", false, "announce HTTP/3, but do not answer it")
	flag.Parse()
	if err := serve(*root, *listen, *cert, *key, *delayH2, *noQUIC); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(root, listen, cert, key string, delayH2 time.Duration, noQUIC bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	identity, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{identity}}
	tcp, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(tcp.Addr().String())
	if err != nil {
		return err
	}
	files := http.FileServer(http.Dir(root))
	announced := fmt.Sprintf(`h3=":%s"; ma=3600`, port)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			time.Sleep(delayH2)
		}
		w.Header().Set("alt-svc", announced)
		files.ServeHTTP(w, r)
	})
	failed := make(chan error, 2)
	if !noQUIC {
		udp, err := net.ListenPacket("udp", listen)
		if err != nil {
			return err
		}
		quic := &http3.Server{Handler: handler, TLSConfig: http3.ConfigureTLSConfig(config.Clone())}
		go func() { failed <- quic.Serve(udp) }()
	}
	server := &http.Server{Handler: handler, TLSConfig: config}
	go func() { failed <- server.ServeTLS(tcp, "", "") }()
	fmt.Fprintf(os.Stderr, "listening on https://%s\n", tcp.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
