package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	large      = 3 << 20
	cancelled  = 4
	bystanders = 3
	patience   = time.Minute
)

// An outcome is one call as the test compares it.
type outcome struct {
	Messages []string `json:"messages"`
	Code     uint32   `json:"code"`
	Message  string   `json:"message"`
	Details  []string `json:"details"`
	// Metadata of the response: a header and, as hexadecimal digits, a trailer.
	Header  string `json:"header"`
	Trailer string `json:"trailer"`
	// Metadata of an error, likewise.
	Detail      string `json:"detail"`
	DetailBytes string `json:"detail-bytes"`
}

func runScenario(c client, scenario string) ([]outcome, error) {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	call := func(name, message string) outcome { return ask(ctx, c, name, message) }
	switch scenario {
	case "unary":
		return []outcome{call("Double", "21"), call("Double", "50")}, nil
	case "large":
		return []outcome{call("Echo", strings.Repeat("x", large))}, nil
	case "count":
		return []outcome{call("Count", "5000")}, nil
	case "refused":
		return []outcome{call("Double", "no"), call("Double", "21")}, nil
	case "broken":
		return []outcome{call("Count", "-3"), call("Double", "21")}, nil
	case "sum":
		return sum(ctx, c)
	case "sums":
		return sums(ctx, c)
	case "deadline":
		soon, end := context.WithTimeout(ctx, time.Second)
		defer end()
		return []outcome{call("Remaining", ""), ask(soon, c, "Wait", "deadline"), call("Double", "21")}, nil
	case "cancel":
		return cancel(ctx, c)
	}
	return nil, fmt.Errorf("unknown scenario %q", scenario)
}

// ask sends one message and receives all.
func ask(ctx context.Context, c client, name, message string) outcome {
	opened, err := c.open(ctx, name, methods[name].kind)
	if err == nil {
		err = opened.send(message)
	}
	if err == nil || err == io.EOF {
		// At io.EOF the reason comes with what is received.
		err = opened.closeSend()
	}
	return finish(c, opened, nil, err)
}

// finish receives the remaining messages; err is an earlier error.
func finish(c client, opened stream, messages []string, err error) outcome {
	for err == nil {
		var message string
		if message, err = opened.receive(); err == nil {
			messages = append(messages, short(message))
		}
	}
	if err != io.EOF {
		found := c.explain(err, opened)
		return outcome{Messages: messages, Code: found.code, Message: found.message, Details: found.details, Detail: found.text, DetailBytes: hex.EncodeToString([]byte(found.bytes))}
	}
	return outcome{Messages: messages, Header: opened.header(echoKey), Trailer: hex.EncodeToString([]byte(opened.trailer(echoKey + binary)))}
}

// short replaces a long message by its hash.
func short(message string) string {
	if len(message) < 1000 {
		return message
	}
	digest := sha256.Sum256([]byte(message))
	return hex.EncodeToString(digest[:])
}

func sum(ctx context.Context, c client) ([]outcome, error) {
	opened, err := c.open(ctx, "Sum", clientStream)
	if err != nil {
		return nil, err
	}
	for i := 1; i <= 1000; i++ {
		if err := opened.send(strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	return []outcome{finish(c, opened, nil, opened.closeSend())}, nil
}

// A conversation is a bidirectional call; each response is awaited before the next message.
type conversation struct {
	opened   stream
	messages []string
}

func (t *conversation) exchange(number int) error {
	if err := t.opened.send(strconv.Itoa(number)); err != nil {
		return err
	}
	message, err := t.opened.receive()
	t.messages = append(t.messages, message)
	return err
}

func (t *conversation) end(c client) outcome {
	return finish(c, t.opened, t.messages, t.opened.closeSend())
}

func converse(ctx context.Context, c client) (*conversation, error) {
	opened, err := c.open(ctx, "Sums", bidi)
	return &conversation{opened: opened}, err
}

func sums(ctx context.Context, c client) ([]outcome, error) {
	talk, err := converse(ctx, c)
	for i := 1; i <= 100 && err == nil; i++ {
		err = talk.exchange(i)
	}
	if err != nil {
		return nil, err
	}
	return []outcome{talk.end(c)}, nil
}

// cancel ends calls early while bystanders on the same connection continue.
func cancel(ctx context.Context, c client) ([]outcome, error) {
	// A connection that all can share.
	outcomes := []outcome{ask(ctx, c, "Double", "21")}
	talks := make([]*conversation, bystanders)
	for i := range talks {
		talk, err := converse(ctx, c)
		if err == nil {
			err = talk.exchange(1)
		}
		if err != nil {
			return nil, err
		}
		talks[i] = talk
	}
	ended, seen := make([]outcome, cancelled), make([]outcome, cancelled)
	var cancelling sync.WaitGroup
	for i := range cancelled {
		cancelling.Go(func() {
			id := "cancelled " + strconv.Itoa(i)
			ended[i] = cancelOne(ctx, c, id)
			seen[i] = ask(ctx, c, "Ended", id)
		})
	}
	cancelling.Wait()
	for _, talk := range talks {
		for i := range 10 {
			if err := talk.exchange(i); err != nil {
				return nil, err
			}
		}
	}
	outcomes = append(append(outcomes, ended...), seen...)
	for _, talk := range talks {
		outcomes = append(outcomes, talk.end(c))
	}
	return append(outcomes, ask(ctx, c, "Double", "50")), nil
}

func cancelOne(ctx context.Context, c client, id string) outcome {
	ctx, end := context.WithCancel(ctx)
	defer end()
	opened, err := c.open(ctx, "Wait", serverStream)
	if err == nil {
		err = opened.send(id)
	}
	if err == nil {
		err = opened.closeSend()
	}
	var messages []string
	if err == nil {
		var message string
		message, err = opened.receive()
		messages = append(messages, message)
	}
	end()
	return finish(c, opened, messages, err)
}
