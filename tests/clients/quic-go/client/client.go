package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// client is one HTTP client and, over HTTP/3, what lies below it.
type client struct {
	transport   http.RoundTripper
	connections atomic.Int64
	// keyUpdates counts those that this side began, on all connections.
	keyUpdates atomic.Int64
	// latest is nil unless it speaks HTTP/3.
	latest atomic.Pointer[quic.Conn]
	// sockets are those that connections were opened on or have moved to, where it can migrate.
	sockets []*quic.Transport
	quicOptions
}

type quicOptions struct {
	idleTimeout time.Duration
	// offerV2 starts with QUIC version 2, and takes version 1 if the server wants it.
	offerV2 bool
	// canMigrate gives it connection IDs, without which quic-go cannot tell at a second socket whose packets come.
	canMigrate bool
}

func newClient(version string, tlsConfig *tls.Config, options quicOptions) (*client, error) {
	client := &client{quicOptions: options}
	var dialer net.Dialer
	tcp := &http.Transport{
		TLSClientConfig:    tlsConfig,
		DisableCompression: true,
		Protocols:          new(http.Protocols),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			client.connections.Add(1)
			return dialer.DialContext(ctx, network, address)
		},
	}
	switch version {
	case "1.1":
		tcp.Protocols.SetHTTP1(true)
		client.transport = tcp
	case "2":
		tcp.Protocols.SetHTTP2(true)
		client.transport = tcp
	case "3":
		config := &quic.Config{MaxIdleTimeout: options.idleTimeout, Tracer: client.trace}
		client.transport = client.http3(tlsConfig, config)
	default:
		return nil, fmt.Errorf("-http is %q: expected 1.1, 2 or 3", version)
	}
	return client, nil
}

func (c *client) http3(tlsConfig *tls.Config, config *quic.Config) *http3.Transport {
	return &http3.Transport{
		TLSClientConfig:    tlsConfig,
		DisableCompression: true,
		QUICConfig:         config,
		Dial: func(ctx context.Context, address string, tlsConfig *tls.Config, config *quic.Config) (*quic.Conn, error) {
			c.connections.Add(1)
			connection, err := c.dial(ctx, address, tlsConfig, config)
			c.latest.Store(connection)
			return connection, err
		},
	}
}

func (c *client) dial(ctx context.Context, address string, tlsConfig *tls.Config, config *quic.Config) (*quic.Conn, error) {
	if c.offerV2 {
		// The transport of HTTP/3 takes a single version only.
		config = config.Clone()
		config.Versions = []quic.Version{quic.Version2, quic.Version1}
	}
	if !c.canMigrate {
		return quic.DialAddrEarly(ctx, address, tlsConfig, config)
	}
	remote, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	transport, err := c.socket()
	if err != nil {
		return nil, err
	}
	return transport.DialEarly(ctx, remote, tlsConfig, config)
}

func (c *client) socket() (*quic.Transport, error) {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4zero})
	if err != nil {
		return nil, err
	}
	transport := &quic.Transport{Conn: socket}
	c.sockets = append(c.sockets, transport)
	return transport, nil
}

func (c *client) reconnect() error {
	old, ok := c.transport.(*http3.Transport)
	if !ok {
		return errors.New("only HTTP/3 can reconnect")
	}
	c.transport = c.http3(old.TLSClientConfig, old.QUICConfig)
	return old.Close()
}

// migrate proves a path from another port and goes on over it (RFC 9000, section 9.2).
func (c *client) migrate(ctx context.Context) error {
	connection := c.latest.Load()
	if connection == nil || !c.canMigrate {
		return errors.New("only HTTP/3 with -can-migrate can migrate")
	}
	transport, err := c.socket()
	if err != nil {
		return err
	}
	path, err := connection.AddPath(transport)
	if err != nil {
		return err
	}
	if err := path.Probe(ctx); err != nil {
		return err
	}
	return path.Switch()
}

func (c *client) state() *quicState {
	connection := c.latest.Load()
	if connection == nil {
		return nil
	}
	state := connection.ConnectionState()
	return &quicState{state.Version.String(), state.TLS.DidResume, state.Used0RTT, c.keyUpdates.Load()}
}

func (c *client) close() error {
	var err error
	if quic, ok := c.transport.(*http3.Transport); ok {
		err = quic.Close()
	}
	for _, socket := range c.sockets {
		err = errors.Join(err, socket.Close(), socket.Conn.Close())
	}
	return err
}

// trace hears of a connection's events by way of its qlog: quic-go has no other word about key updates.
func (c *client) trace(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
	return recorder{c}
}

type recorder struct{ *client }

func (r recorder) AddProducer() qlogwriter.Recorder { return r }

func (r recorder) RecordEvent(event qlogwriter.Event) {
	update, ok := event.(qlog.KeyUpdated)
	if ok && update.Trigger == qlog.KeyUpdateLocal && update.KeyType == qlog.KeyTypeClient1RTT {
		r.keyUpdates.Add(1)
	}
}

func (recorder) Close() error { return nil }
