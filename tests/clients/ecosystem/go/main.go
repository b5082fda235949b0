// Command ecosystem-go runs the scenarios of tests/e2e/test_ecosystem.py with Go clients.
//
// usage: ecosystem-go CLIENT PROTOCOL SCENARIO ORIGIN CA FILE TAG
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
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	mib        = 1 << 20
	cancelled  = 4
	bystanders = 3
)

// An answer is the result that the test compares.
type answer struct {
	Status   int    `json:"status"`
	Protocol string `json:"protocol"`
	Bytes    int    `json:"bytes"`
	Sha256   string `json:"sha256"`
	Text     string `json:"text"`
}

// A runner has a client and its site.
type runner struct {
	client      *http.Client
	origin, tag string
	content     []byte
}

func main() {
	if len(os.Args) != 8 {
		fmt.Fprintln(os.Stderr, "usage: ecosystem-go CLIENT PROTOCOL SCENARIO ORIGIN CA FILE TAG")
		os.Exit(2)
	}
	answers, err := run(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], os.Args[7])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	line, err := json.Marshal(map[string]any{"answers": answers})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(line))
}

func run(protocol, scenario, origin, ca, file, tag string) ([]answer, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(pem)
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: trust}
	if protocol == "1.1" {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
	}
	r := &runner{&http.Client{Transport: transport}, origin, tag, content}
	if seconds, rests := strings.CutPrefix(scenario, "idle-"); rests {
		return r.inTurn(r.get("/small.txt"), rest(seconds+"s"), r.get("/small.txt"))
	}
	switch scenario {
	case "small":
		return r.inTurn(r.get("/small.txt"), r.get("/small.txt"))
	case "download":
		return r.inTurn(r.get("/large.bin"))
	case "upload":
		return r.inTurn(r.post("/upload", bytes.NewReader(r.content)))
	case "stream":
		return r.inTurn(r.post("/upload", withoutLength(r.content)))
	case "refused":
		return r.inTurn(r.post("/forbidden", withoutLength(r.content)), r.get("/small.txt"))
	case "cancel":
		return r.cancel()
	case "shutdown":
		return r.shutdown()
	}
	return nil, fmt.Errorf("unknown scenario %q", scenario)
}

// withoutLength hides the content's length.
func withoutLength(content []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(content))
}

func (r *runner) url(path string) string { return r.origin + path + "?" + r.tag }

func (r *runner) get(path string) func() (*answer, error) {
	return func() (*answer, error) {
		response, err := r.client.Get(r.url(path))
		if err != nil {
			return nil, err
		}
		return finish(response, nil)
	}
}

func (r *runner) post(path string, content io.Reader) func() (*answer, error) {
	return func() (*answer, error) {
		response, err := r.client.Post(r.url(path), "application/octet-stream", content)
		if err != nil {
			return nil, err
		}
		return finish(response, nil)
	}
}

func rest(duration string) func() (*answer, error) {
	return func() (*answer, error) {
		idle, err := time.ParseDuration(duration)
		time.Sleep(idle)
		return nil, err
	}
}

func (r *runner) inTurn(steps ...func() (*answer, error)) ([]answer, error) {
	var answers []answer
	for _, step := range steps {
		got, err := step()
		if err != nil {
			return nil, err
		}
		if got != nil {
			answers = append(answers, *got)
		}
	}
	return answers, nil
}

// finish reads a response to its end, and calls onPiece with the size so far.
func finish(response *http.Response, onPiece func(int)) (*answer, error) {
	defer response.Body.Close()
	digest, size, text, piece := sha256.New(), 0, []byte{}, make([]byte, 65536)
	for {
		count, err := response.Body.Read(piece)
		digest.Write(piece[:count])
		size += count
		if size < 1000 {
			text = append(text, piece[:count]...)
		}
		if onPiece != nil && count > 0 {
			onPiece(size)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return &answer{response.StatusCode, response.Proto, size, hex.EncodeToString(digest.Sum(nil)), string(text)}, nil
}

// cancel ends downloads early while bystanders, which read slowly, are still in progress.
func (r *runner) cancel() ([]answer, error) {
	// A connection that all can share.
	first, err := r.get("/small.txt")()
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	started := make(chan error, bystanders)
	answers, errs := make([]*answer, bystanders), make([]error, bystanders)
	var running sync.WaitGroup
	for i := range bystanders {
		running.Go(func() {
			response, err := r.client.Get(r.url("/large.bin"))
			started <- err
			if err != nil {
				errs[i] = err
				return
			}
			pausedAt := 0
			answers[i], errs[i] = finish(response, func(size int) {
				select {
				case <-done:
				default:
					if size/mib > pausedAt {
						pausedAt = size / mib
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		})
	}
	for range bystanders {
		if err := <-started; err != nil {
			return nil, err
		}
	}
	cancels := make([]error, cancelled)
	var cancelling sync.WaitGroup
	for i := range cancelled {
		cancelling.Go(func() { cancels[i] = r.cancelOne() })
	}
	cancelling.Wait()
	close(done)
	running.Wait()
	last, err := r.get("/small.txt")()
	for _, each := range append(append(cancels, errs...), err) {
		if each != nil {
			return nil, each
		}
	}
	all := []answer{*first}
	for _, each := range append(answers, last) {
		all = append(all, *each)
	}
	return all, nil
}

func (r *runner) cancelOne() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", r.url("/large.bin"), nil)
	if err != nil {
		return err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.ReadFull(response.Body, make([]byte, 65536))
	return err
}

// shutdown reads the first bytes, reports it, and continues when told to.
func (r *runner) shutdown() ([]answer, error) {
	response, err := r.client.Get(r.url("/large.bin"))
	if err != nil {
		return nil, err
	}
	told := false
	got, err := finish(response, func(int) {
		if !told {
			told = true
			fmt.Println("reading")
			bufio.NewReader(os.Stdin).ReadString('\n')
		}
	})
	if err != nil {
		return nil, err
	}
	return []answer{*got}, nil
}
