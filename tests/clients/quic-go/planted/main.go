// Command planted serves a folder over HTTP/1.1, 2 and 3 with a known fault, which the lab must find: a late response
// over HTTP/2, HTTP/3 announced without a server, or only errors over HTTP/3.
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
	statusH3 := flag.Int("status-h3", 0, "answer each request over HTTP/3 with this status instead of a file")
	flag.Parse()
	faults := faults{*delayH2, *noQUIC, *statusH3}
	if err := serve(*root, *listen, *cert, *key, faults); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type faults struct {
	delayH2  time.Duration
	noQUIC   bool
	statusH3 int
}

func serve(root, listen, cert, key string, faults faults) error {
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
			time.Sleep(faults.delayH2)
		}
		w.Header().Set("alt-svc", announced)
		if r.ProtoMajor == 3 && faults.statusH3 != 0 {
			http.Error(w, "planted", faults.statusH3)
			return
		}
		files.ServeHTTP(w, r)
	})
	failed := make(chan error, 2)
	if !faults.noQUIC {
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
