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

// client is one HTTP client and, over HTTP/3, its QUIC connection and sockets.
type client struct {
	transport   http.RoundTripper
	connections atomic.Int64
	// keyUpdates counts the key updates that this side started, on all connections.
	keyUpdates atomic.Int64
	// latest is nil except over HTTP/3.
	latest atomic.Pointer[quic.Conn]
	// tickets holds a value once the latest HTTP/3 connection has received a session ticket.
	tickets chan struct{}
	// sockets are those of all connections, including those migrated to.
	sockets []*quic.Transport
	quicOptions
}

type quicOptions struct {
	idleTimeout time.Duration
	// offerV2 starts with QUIC version 2, and accepts version 1 if the server selects it.
	offerV2 bool
	// canMigrate enables connection IDs, which quic-go needs to assign packets on a second socket.
	canMigrate bool
}

func newClient(version string, tlsConfig *tls.Config, options quicOptions) (*client, error) {
	client := &client{quicOptions: options, tickets: make(chan struct{}, 1)}
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
		tlsConfig = tlsConfig.Clone()
		tlsConfig.ClientSessionCache = notifyingCache{tlsConfig.ClientSessionCache, client.tickets}
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
		// The HTTP/3 transport accepts only a single version.
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

// reconnect waits for a session ticket first: the response to early data may arrive before it, and with the ticket of
// the old connection, which a server takes once, early data would be rejected.
func (c *client) reconnect(ctx context.Context) error {
	old, ok := c.transport.(*http3.Transport)
	if !ok {
		return errors.New("only HTTP/3 can reconnect")
	}
	select {
	case <-c.tickets:
	case <-ctx.Done():
		return errors.New("the server sent no session ticket")
	}
	c.transport = c.http3(old.TLSClientConfig, old.QUICConfig)
	return old.Close()
}

// migrate validates a path from another port and continues over it (RFC 9000 section 9.2).
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

// notifyingCache tells of each session that is stored.
type notifyingCache struct {
	tls.ClientSessionCache
	stored chan<- struct{}
}

func (c notifyingCache) Put(key string, state *tls.ClientSessionState) {
	c.ClientSessionCache.Put(key, state)
	if state == nil {
		return
	}
	select {
	case c.stored <- struct{}{}:
	default:
	}
}

// trace receives a connection's qlog events: quic-go reports key updates only there.
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
