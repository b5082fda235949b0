package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Message is the type of all messages; it needs no generated code.
type Message = wrapperspb.StringValue

// serve runs the service in clear text, with grpc-go or with the handlers of connect-go.
func serve(library string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "listening on http://%s\n", listener.Addr())
	switch library {
	case "grpc":
		server := grpc.NewServer()
		server.RegisterService(grpcService(), newCounter())
		return server.Serve(listener)
	case "connect":
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Handler: connectService(newCounter()), Protocols: protocols}
		return server.Serve(listener)
	}
	return fmt.Errorf("unknown library %q", library)
}

// grpcService serves all kinds of calls as streams, which do not differ on the wire.
func grpcService() *grpc.ServiceDesc {
	described := &grpc.ServiceDesc{ServiceName: service[1 : len(service)-1], HandlerType: (*any)(nil)}
	for name, method := range methods {
		described.Streams = append(described.Streams, grpc.StreamDesc{
			StreamName:    name,
			ServerStreams: true,
			ClientStreams: true,
			Handler: func(server any, stream grpc.ServerStream) error {
				return grpcError(stream, method.handle(server.(*counter), grpcCall{stream}))
			},
		})
	}
	return described
}

func grpcError(stream grpc.ServerStream, err error) error {
	var failed *failure
	if !errors.As(err, &failed) {
		return err
	}
	stream.SetTrailer(metadata.Pairs(detailKey, "digits only", detailKey+binary, detailBytes))
	sent, err := status.New(codes.Code(failed.code), failed.message).WithDetails(wrapperspb.String(detail))
	if err != nil {
		return err
	}
	return sent.Err()
}

type grpcCall struct{ grpc.ServerStream }

func (c grpcCall) context() context.Context { return c.Context() }

func (c grpcCall) receive() (string, error) {
	message := new(Message)
	err := c.RecvMsg(message)
	return message.GetValue(), err
}

func (c grpcCall) send(message string) error { return c.SendMsg(wrapperspb.String(message)) }

func (c grpcCall) metadata(name string) string {
	values := metadata.ValueFromIncomingContext(c.Context(), name)
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func (c grpcCall) setHeader(name, value string)  { c.SetHeader(metadata.Pairs(name, value)) }
func (c grpcCall) setTrailer(name, value string) { c.SetTrailer(metadata.Pairs(name, value)) }

// connectService serves the protocols Connect, gRPC and gRPC-Web.
func connectService(s *counter) http.Handler {
	handlers := http.NewServeMux()
	for name, method := range methods {
		handlers.Handle(service+name, connectHandler(s, service+name, method))
	}
	return handlers
}

func connectHandler(s *counter, path string, method method) http.Handler {
	run := func(c *connectCall) error { return connectError(method.handle(s, c)) }
	switch method.kind {
	case unary:
		return connect.NewUnaryHandler(path, func(ctx context.Context, request *connect.Request[Message]) (*connect.Response[Message], error) {
			response := connect.NewResponse(new(Message))
			err := run(&connectCall{
				ctx:     ctx,
				request: request.Header(), header: response.Header(), trailer: response.Trailer(),
				next: once(request.Msg),
				put:  func(message *Message) error { response.Msg.Value = message.Value; return nil },
			})
			return response, err
		})
	case serverStream:
		return connect.NewServerStreamHandler(path, func(ctx context.Context, request *connect.Request[Message], stream *connect.ServerStream[Message]) error {
			return run(&connectCall{
				ctx:     ctx,
				request: request.Header(), header: stream.ResponseHeader(), trailer: stream.ResponseTrailer(),
				next: once(request.Msg),
				put:  stream.Send,
			})
		})
	case clientStream:
		return connect.NewClientStreamHandler(path, func(ctx context.Context, stream *connect.ClientStream[Message]) (*connect.Response[Message], error) {
			response := connect.NewResponse(new(Message))
			err := run(&connectCall{
				ctx:     ctx,
				request: stream.RequestHeader(), header: response.Header(), trailer: response.Trailer(),
				next: func() (*Message, error) {
					if stream.Receive() {
						return stream.Msg(), nil
					}
					if stream.Err() != nil {
						return nil, stream.Err()
					}
					return nil, io.EOF
				},
				put: func(message *Message) error { response.Msg.Value = message.Value; return nil },
			})
			return response, err
		})
	default:
		return connect.NewBidiStreamHandler(path, func(ctx context.Context, stream *connect.BidiStream[Message, Message]) error {
			return run(&connectCall{
				ctx:     ctx,
				request: stream.RequestHeader(), header: stream.ResponseHeader(), trailer: stream.ResponseTrailer(),
				next: stream.Receive,
				put:  stream.Send,
			})
		})
	}
}

// once returns the message of a request that does not stream, then the end.
func once(message *Message) func() (*Message, error) {
	return func() (*Message, error) {
		next := message
		if message = nil; next == nil {
			return nil, io.EOF
		}
		return next, nil
	}
}

func connectError(err error) error {
	var failed *failure
	if !errors.As(err, &failed) {
		return err
	}
	sent := connect.NewError(connect.Code(failed.code), failed)
	sent.Meta().Set(detailKey, "digits only")
	sent.Meta().Set(detailKey+binary, connect.EncodeBinaryHeader([]byte(detailBytes)))
	added, err := connect.NewErrorDetail(wrapperspb.String(detail))
	if err != nil {
		return err
	}
	sent.AddDetail(added)
	return sent
}

type connectCall struct {
	ctx                      context.Context
	request, header, trailer http.Header
	next                     func() (*Message, error)
	put                      func(*Message) error
}

func (c *connectCall) context() context.Context { return c.ctx }

func (c *connectCall) receive() (string, error) {
	message, err := c.next()
	if errors.Is(err, io.EOF) {
		return "", io.EOF
	}
	return message.GetValue(), err
}

func (c *connectCall) send(message string) error     { return c.put(wrapperspb.String(message)) }
func (c *connectCall) metadata(name string) string   { return c.request.Get(name) }
func (c *connectCall) setHeader(name, value string)  { c.header.Set(name, value) }
func (c *connectCall) setTrailer(name, value string) { c.trailer.Set(name, value) }
