package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	token      = "a token"
	tokenBytes = "\x00\xff\x10"
)

// A stream is one call as the client sees it.
type stream interface {
	send(message string) error
	closeSend() error
	// receive returns io.EOF after the last message of a successful call.
	receive() (string, error)
	// header and trailer return what the service sent; binary values are decoded.
	header(name string) string
	trailer(name string) string
}

// A client opens calls.
type client interface {
	open(ctx context.Context, name string, kind kind) (stream, error)
	// explain returns the code, message, string details and metadata of an error.
	explain(err error, failed stream) problem
}

// A problem is an error of a call.
type problem struct {
	code        uint32
	message     string
	details     []string
	text, bytes string
}

func connectTo(name, origin, ca string) (client, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(pem)
	settings := &tls.Config{RootCAs: trust}
	if name == "grpc-go" {
		address := "passthrough:///" + strings.TrimPrefix(origin, "https://")
		connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(settings)))
		return grpcClient{connection}, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = settings
	var options []connect.ClientOption
	switch name {
	case "connect":
	case "connect-http1":
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
	case "connect-grpc":
		options = append(options, connect.WithGRPC())
	case "connect-grpc-web":
		options = append(options, connect.WithGRPCWeb())
	default:
		return nil, fmt.Errorf("unknown client %q", name)
	}
	return connectClient{&http.Client{Transport: transport}, origin, options}, nil
}

type grpcClient struct{ connection *grpc.ClientConn }

func (c grpcClient) open(ctx context.Context, name string, kind kind) (stream, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, tokenKey, token, tokenKey+binary, tokenBytes)
	if kind == unary {
		invoke := func(message *Message, at *grpcUnary) (*Message, error) {
			answer := new(Message)
			err := c.connection.Invoke(ctx, service+name, message, answer, grpc.Header(&at.headers), grpc.Trailer(&at.trailers))
			return answer, err
		}
		return &grpcUnary{invoke: invoke}, nil
	}
	description := &grpc.StreamDesc{ServerStreams: kind != clientStream, ClientStreams: kind != serverStream}
	opened, err := c.connection.NewStream(ctx, description, service+name)
	if err != nil {
		return nil, err
	}
	return grpcStream{opened}, nil
}

func (c grpcClient) explain(err error, failed stream) problem {
	received := status.Convert(err)
	found := problem{code: uint32(received.Code()), message: received.Message()}
	if failed != nil {
		found.text, found.bytes = failed.trailer(detailKey), failed.trailer(detailKey+binary)
	}
	for _, each := range received.Details() {
		if text, ok := each.(*Message); ok {
			found.details = append(found.details, text.GetValue())
		}
	}
	return found
}

// A grpcUnary sends its message and receives the response in one step.
type grpcUnary struct {
	invoke            func(*Message, *grpcUnary) (*Message, error)
	message           *Message
	headers, trailers metadata.MD
}

func (s *grpcUnary) send(message string) error { s.message = wrapperspb.String(message); return nil }
func (s *grpcUnary) closeSend() error          { return nil }

func (s *grpcUnary) receive() (string, error) {
	if s.message == nil {
		return "", io.EOF
	}
	answer, err := s.invoke(s.message, s)
	s.message = nil
	return answer.GetValue(), err
}

func (s *grpcUnary) header(name string) string  { return first(s.headers, name) }
func (s *grpcUnary) trailer(name string) string { return first(s.trailers, name) }

type grpcStream struct{ opened grpc.ClientStream }

func (s grpcStream) send(message string) error { return s.opened.SendMsg(wrapperspb.String(message)) }
func (s grpcStream) closeSend() error          { return s.opened.CloseSend() }

func (s grpcStream) receive() (string, error) {
	message := new(Message)
	err := s.opened.RecvMsg(message)
	return message.GetValue(), err
}

func (s grpcStream) header(name string) string {
	headers, _ := s.opened.Header()
	return first(headers, name)
}

func (s grpcStream) trailer(name string) string { return first(s.opened.Trailer(), name) }

func first(values metadata.MD, name string) string {
	if found := values.Get(name); len(found) > 0 {
		return found[0]
	}
	return ""
}

type connectClient struct {
	http    *http.Client
	origin  string
	options []connect.ClientOption
}

func (c connectClient) open(ctx context.Context, name string, kind kind) (stream, error) {
	library := connect.NewClient[Message, Message](c.http, c.origin+service+name, c.options...)
	opened := &connectStream{}
	prepare := func(header http.Header) {
		header.Set(tokenKey, token)
		header.Set(tokenKey+binary, connect.EncodeBinaryHeader([]byte(tokenBytes)))
	}
	var one *Message
	opened.put = func(message *Message) error { one = message; return nil }
	opened.end = func() error { return nil }
	switch kind {
	case unary:
		opened.next = single(func() (*connect.Response[Message], error) {
			request := connect.NewRequest(one)
			prepare(request.Header())
			return library.CallUnary(ctx, request)
		}, opened)
	case serverStream:
		var running *connect.ServerStreamForClient[Message]
		opened.end = func() (err error) {
			request := connect.NewRequest(one)
			prepare(request.Header())
			running, err = library.CallServerStream(ctx, request)
			return err
		}
		opened.next = func() (*Message, error) {
			if running.Receive() {
				return running.Msg(), nil
			}
			opened.headers, opened.trailers = running.ResponseHeader(), running.ResponseTrailer()
			if running.Err() != nil {
				return nil, running.Err()
			}
			return nil, io.EOF
		}
	case clientStream:
		running := library.CallClientStream(ctx)
		prepare(running.RequestHeader())
		opened.put = running.Send
		opened.next = single(running.CloseAndReceive, opened)
	case bidi:
		running := library.CallBidiStream(ctx)
		prepare(running.RequestHeader())
		opened.put = running.Send
		opened.end = running.CloseRequest
		opened.next = func() (*Message, error) {
			message, err := running.Receive()
			if err != nil {
				opened.headers, opened.trailers = running.ResponseHeader(), running.ResponseTrailer()
			}
			return message, err
		}
	}
	return opened, nil
}

// single receives the message of a response that does not stream, then the end.
func single(call func() (*connect.Response[Message], error), opened *connectStream) func() (*Message, error) {
	done := false
	return func() (*Message, error) {
		if done {
			return nil, io.EOF
		}
		done = true
		response, err := call()
		if err != nil {
			return nil, err
		}
		opened.headers, opened.trailers = response.Header(), response.Trailer()
		return response.Msg, nil
	}
}

func (c connectClient) explain(err error, _ stream) problem {
	var received *connect.Error
	if !errors.As(err, &received) {
		return problem{code: uint32(connect.CodeOf(err)), message: err.Error()}
	}
	found := problem{code: uint32(received.Code()), message: received.Message(), text: received.Meta().Get(detailKey), bytes: decoded(received.Meta(), detailKey+binary)}
	for _, each := range received.Details() {
		value, err := each.Value()
		if text, ok := value.(*Message); ok && err == nil {
			found.details = append(found.details, text.GetValue())
		}
	}
	return found
}

type connectStream struct {
	put               func(*Message) error
	end               func() error
	next              func() (*Message, error)
	headers, trailers http.Header
}

func (s *connectStream) send(message string) error { return s.put(wrapperspb.String(message)) }
func (s *connectStream) closeSend() error          { return s.end() }

func (s *connectStream) receive() (string, error) {
	message, err := s.next()
	if errors.Is(err, io.EOF) {
		return "", io.EOF
	}
	return message.GetValue(), err
}

func (s *connectStream) header(name string) string  { return decoded(s.headers, name) }
func (s *connectStream) trailer(name string) string { return decoded(s.trailers, name) }

func decoded(fields http.Header, name string) string {
	value := fields.Get(name)
	if strings.HasSuffix(name, binary) {
		bytes, err := connect.DecodeBinaryHeader(value)
		if err != nil {
			return hex.EncodeToString([]byte(value)) + " is not Base64"
		}
		return string(bytes)
	}
	return value
}
