// Command quic-go is a peer for the benchmarks: a server on quic-go for HTTP/3, and Go's own net/http for HTTP/1.1 and 2.
// It reads the files once, at start: it shows the upper bound of the library, not of a file server.
//
// usage: quic-go ADDRESS:PORT CERTIFICATE.pem KEY.pem FOLDER
package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(arguments []string) error {
	if len(arguments) != 4 {
		return errors.New("usage: quic-go ADDRESS:PORT CERTIFICATE.pem KEY.pem FOLDER")
	}
	address, certificate, key, folder := arguments[0], arguments[1], arguments[2], arguments[3]
	identity, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	handler, err := files(folder)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{identity}}
	failed := make(chan error)
	quicServer := &http3.Server{
		Addr:       address,
		Handler:    handler,
		TLSConfig:  http3.ConfigureTLSConfig(config.Clone()),
		QUICConfig: &quic.Config{MaxIncomingStreams: 256},
	}
	go func() { failed <- quicServer.ListenAndServe() }()
	tcpServer := &http.Server{Addr: address, Handler: handler, TLSConfig: config}
	go func() { failed <- tcpServer.ListenAndServeTLS("", "") }()
	fmt.Fprintf(os.Stderr, "listening on https://%s (h1, h2, h3)\n", address)
	return <-failed
}

// files serves the files of one folder, with the fields of a fair response: net/http adds the date for TCP,
// quic-go adds none.
func files(folder string) (http.Handler, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	contents := make(map[string][]byte)
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		contents["/"+entry.Name()] = content
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, found := contents[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		header := w.Header()
		if filepath.Ext(r.URL.Path) == ".txt" {
			header["Content-Type"] = []string{"text/plain"}
		} else {
			header["Content-Type"] = []string{"application/octet-stream"}
		}
		header["Content-Length"] = []string{strconv.Itoa(len(content))}
		header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
		header["Server"] = []string{"bench"}
		_, _ = w.Write(content)
	}), nil
}
