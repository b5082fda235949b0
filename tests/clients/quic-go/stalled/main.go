// Command stalled makes a server hold as much as it can, for tests of its memory: an upstream that reads no upload, and
// a client that reads no download, until a line on standard input releases them.
//
// As an upstream it prints {"address": …} first. As a client it prints its progress as a JSON line several times a
// second, and ends once all content was exchanged and compared.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	upstream := flag.Bool("upstream", false, "be the upstream")
	load := load{}
	flag.StringVar(&load.version, "http", "2", "HTTP version: 1.1, 2 or 3")
	flag.StringVar(&load.url, "url", "", "address of the server (required for the client)")
	flag.IntVar(&load.uploads, "uploads", 0, "number of uploads")
	flag.IntVar(&load.downloads, "downloads", 0, "number of downloads")
	flag.Int64Var(&load.bytes, "bytes", 8<<20, "size of each")
	flag.IntVar(&load.perConnection, "per-connection", 100, "requests on each connection")
	flag.Int64Var(&load.window, "window", 64<<10, "flow-control window of each download")
	flag.Int64Var(&load.socketBytes, "socket-bytes", 0, "bytes of each TCP connection that are read before the release; 0 for no limit")
	caFile := flag.String("ca", "", "PEM file with the certificates to trust (required for the client)")
	flag.Parse()

	released := make(chan struct{})
	go func() {
		// The end of the input releases, too.
		bufio.NewScanner(os.Stdin).Scan()
		close(released)
	}()
	if *upstream {
		return serve(released)
	}
	pem, err := os.ReadFile(*caFile)
	if err != nil {
		return fmt.Errorf("reading -ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate", *caFile)
	}
	load.tls = &tls.Config{RootCAs: roots}
	load.released = released
	done := make(chan error, 1)
	go func() { done <- load.run() }()
	output := json.NewEncoder(os.Stdout)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(output.Encode(load.progress()), err)
		case <-ticker.C:
			if err := output.Encode(load.progress()); err != nil {
				return err
			}
		}
	}
}
