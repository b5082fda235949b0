package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
)

// serve answers uploads with the hash of their content, which it reads only once it is released, and downloads with
// content of their size. `/healthy` stands for another site: it is answered at once. `/began` is the number of uploads
// whose head has arrived.
func serve(released <-chan struct{}) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var began atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /upload", func(response http.ResponseWriter, request *http.Request) {
		began.Add(1)
		select {
		case <-released:
		case <-request.Context().Done():
			return
		}
		hash := sha256.New()
		if _, err := io.Copy(hash, request.Body); err != nil {
			return
		}
		io.WriteString(response, hex.EncodeToString(hash.Sum(nil)))
	})
	mux.HandleFunc("GET /download/{number}/{bytes}", func(response http.ResponseWriter, request *http.Request) {
		number, _ := strconv.Atoi(request.PathValue("number"))
		size, _ := strconv.ParseInt(request.PathValue("bytes"), 10, 64)
		response.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		io.Copy(response, newContent(number, size))
	})
	mux.HandleFunc("/healthy", func(response http.ResponseWriter, request *http.Request) {
		io.Copy(response, request.Body)
	})
	mux.HandleFunc("GET /began", func(response http.ResponseWriter, _ *http.Request) {
		io.WriteString(response, strconv.FormatInt(began.Load(), 10))
	})
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"address": "http://" + listener.Addr().String()}); err != nil {
		return err
	}
	return http.Serve(listener, mux)
}
