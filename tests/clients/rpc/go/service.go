package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

const service = "/pronghorn.test.Counter/"

// Metadata of requests, responses and errors.
const (
	tokenKey  = "x-token"
	echoKey   = "x-echo"
	detailKey = "x-detail"
	binary    = "-bin"
	detail    = "digits only: % \u00e9"
)

var detailBytes = string([]byte{0, 0xff, 0x10})

// A failure is an error that the service sends, with details and trailers.
type failure struct {
	code    uint32
	message string
}

func (f *failure) Error() string { return f.message }

// A kind tells which sides of a call stream.
type kind int

const (
	unary kind = iota
	serverStream
	clientStream
	bidi
)

// A call is one call as the service sees it; its messages are strings.
type call interface {
	context() context.Context
	receive() (string, error)
	send(message string) error
	metadata(name string) string
	setHeader(name, value string)
	setTrailer(name, value string)
}

type method struct {
	kind   kind
	handle func(*counter, call) error
}

var methods = map[string]method{
	"Double":    {unary, (*counter).double},
	"Echo":      {unary, (*counter).echo},
	"Remaining": {unary, (*counter).remaining},
	"Ended":     {unary, (*counter).ended},
	"Count":     {serverStream, (*counter).count},
	"Wait":      {serverStream, (*counter).wait},
	"Sum":       {clientStream, (*counter).sum},
	"Sums":      {bidi, (*counter).sums},
}

// A counter is the service.
type counter struct {
	lock    sync.Mutex
	waiters map[string]chan string
}

func newCounter() *counter { return &counter{waiters: map[string]chan string{}} }

// waiter returns the channel on which a waiting call reports how it ended.
func (s *counter) waiter(id string) chan string {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.waiters[id] == nil {
		s.waiters[id] = make(chan string, 1)
	}
	return s.waiters[id]
}

// double returns twice a number, and the metadata of the request.
func (s *counter) double(c call) error {
	message, err := c.receive()
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(message)
	if err != nil {
		return &failure{3, "no number: % \u00e9"}
	}
	c.setHeader(echoKey, c.metadata(tokenKey))
	c.setTrailer(echoKey+binary, c.metadata(tokenKey+binary))
	return c.send(strconv.Itoa(2 * number))
}

func (s *counter) echo(c call) error {
	message, err := c.receive()
	if err != nil {
		return err
	}
	return c.send(message)
}

// remaining returns the milliseconds until the call's deadline.
func (s *counter) remaining(c call) error {
	if _, err := c.receive(); err != nil {
		return err
	}
	deadline, ok := c.context().Deadline()
	if !ok {
		return c.send("no deadline")
	}
	return c.send(strconv.FormatInt(time.Until(deadline).Milliseconds(), 10))
}

// count sends the numbers below a number; if that is negative, an error follows them.
func (s *counter) count(c call) error {
	message, err := c.receive()
	if err != nil {
		return err
	}
	digits, fails := strings.CutPrefix(message, "-")
	number, err := strconv.Atoi(digits)
	if err != nil {
		return &failure{3, "no number"}
	}
	for i := range number {
		if err := c.send(strconv.Itoa(i)); err != nil {
			return err
		}
	}
	if fails {
		return &failure{8, "no more numbers"}
	}
	return nil
}

// wait sends a message and waits until the call ends.
func (s *counter) wait(c call) error {
	id, err := c.receive()
	if err != nil {
		return err
	}
	if err := c.send("waiting"); err != nil {
		return err
	}
	<-c.context().Done()
	s.waiter(id) <- c.context().Err().Error()
	return c.context().Err()
}

// ended waits until a waiting call has ended, and returns how.
func (s *counter) ended(c call) error {
	id, err := c.receive()
	if err != nil {
		return err
	}
	select {
	case how := <-s.waiter(id):
		return c.send(how)
	case <-c.context().Done():
		return c.context().Err()
	}
}

func (s *counter) sum(c call) error {
	total := 0
	if err := addAll(c, &total, func() error { return nil }); err != nil {
		return err
	}
	return c.send(strconv.Itoa(total))
}

// sums sends the sum so far after each number.
func (s *counter) sums(c call) error {
	total := 0
	return addAll(c, &total, func() error { return c.send(strconv.Itoa(total)) })
}

func addAll(c call, total *int, afterEach func() error) error {
	for {
		message, err := c.receive()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(message)
		if err != nil {
			return &failure{3, "no number"}
		}
		*total += number
		if err := afterEach(); err != nil {
			return err
		}
	}
}
