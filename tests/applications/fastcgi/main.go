// A FastCGI application on Go's standard library.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/fcgi"
	"os"
)

// Asked is its description of a request.
type Asked struct {
	Method  string      `json:"method"`
	URL     string      `json:"url"`
	Host    string      `json:"host"`
	Remote  string      `json:"remote"`
	Secure  bool        `json:"secure"`
	Length  int64       `json:"length"`
	SHA256  string      `json:"sha256"`
	Headers http.Header `json:"headers"`
}

func answer(writer http.ResponseWriter, request *http.Request) {
	hash := sha256.New()
	if _, err := io.Copy(hash, request.Body); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	writer.Header().Set("content-type", "application/json")
	if err := json.NewEncoder(writer).Encode(Asked{
		Method:  request.Method,
		URL:     request.URL.String(),
		Host:    request.Host,
		Remote:  request.RemoteAddr,
		Secure:  request.TLS != nil,
		Length:  request.ContentLength,
		SHA256:  hex.EncodeToString(hash.Sum(nil)),
		Headers: request.Header,
	}); err != nil {
		log.Print(err)
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "listening on fastcgi://%s\n", listener.Addr())
	log.Fatal(fcgi.Serve(listener, http.HandlerFunc(answer)))
}
