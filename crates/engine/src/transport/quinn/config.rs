//! Configuration of an endpoint's connections.

use std::sync::Arc;

use quinn_proto::congestion::ControllerFactory;
use quinn_proto::{IdleTimeout, ServerConfig, Side, TransportConfig, ValidationTokenConfig};

use super::convert::varint;
use crate::config::Config;
use crate::limits::{Limits, SMALLEST_SEND_WINDOW};
use crate::qlog::{Qlog, Trace};
use crate::runtime::Wakeup;
use crate::stats::Stats;
use crate::tls::{ListenerTls, Parking};
use crate::transport::EndpointKeys;
use crate::transport::congestion::{self, SendConfig, WindowQuery};
use crate::transport::session::{self, ServerTls};
use crate::window_budget::first_window;

/// Tokens for later connections that a client is given: browsers sometimes open a second connection
/// in parallel.
const TOKENS_SENT: u32 = 2;
/// Initial limit of a connection's concurrent requests; it is raised when most of them are in use.
/// quinn-proto allocates some 50 bytes for each allowed stream, and its table has space for 112 of
/// them, unidirectional ones included; one more would double it.
//= RFC 9114 section 6.1
//# So as to not unnecessarily limit parallelism, at least 100 request streams SHOULD be permitted at a time.
const FIRST_REQUESTS: u64 = 100;
/// Bidirectional streams that a server may open. HTTP/3 has none: the first one must be receivable
/// so that the connection closes with the right error.
const SERVER_REQUESTS: u64 = 2;
/// Bytes of received datagrams that quinn-proto may buffer: one of the largest, since datagrams are
/// read as soon as they arrive.
const RECEIVED_DATAGRAM_BYTES: usize = 66_000;

/// Configuration of an endpoint and its connections.
pub(crate) struct QuinnConfig {
    pub(super) limits: Limits,
    pub(super) keys: EndpointKeys,
    pub(super) tls: Option<Arc<ServerTls>>,
    /// For connections with smaller windows than those a session was created with.
    pub(super) without_sessions: Option<Arc<ServerTls>>,
    pub(super) congestion: Arc<dyn ControllerFactory + Send + Sync>,
    pub(super) qlog: Option<Qlog>,
    pub(super) question: WindowQuery,
    /// Bytes of datagrams that a connection may queue for sending, if datagrams are enabled.
    pub(super) datagram_bytes: Option<usize>,
    /// Seed of all random numbers of the endpoint, so that a run can be repeated; by default they
    /// come from the operating system.
    pub(super) seed: Option<[u8; 32]>,
    pub(super) wakeup: Option<Arc<Wakeup>>,
}

/// Returns the TLS configuration without session resumption.
///
/// A client that resumes a session relies on the windows that it had then, and may fill them before
/// it learns the new ones.
fn without_sessions(tls: &ListenerTls) -> ListenerTls {
    let mut config = rustls::ServerConfig::clone(&tls.config);
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    (config.send_tls13_tickets, config.max_early_data_size) = (0, 0);
    let parking = tls.parking.as_deref().and_then(Parking::without_sessions);
    ListenerTls { config: Arc::new(config), parking: parking.map(Arc::new) }
}

/// TLS for connections that this side opens.
#[derive(Clone)]
pub(crate) struct ClientTls(pub(super) Arc<session::ClientTls>);

impl ClientTls {
    pub(crate) fn new(config: Arc<rustls::ClientConfig>) -> Result<Self, String> {
        session::ClientTls::new(config).map(|tls| Self(Arc::new(tls)))
    }
}

impl QuinnConfig {
    pub(crate) fn new(
        limits: &Limits,
        sending: SendConfig,
        tls: Option<ListenerTls>,
        keys: EndpointKeys,
        qlog: Option<Qlog>,
    ) -> Result<Self, String> {
        let question = WindowQuery::default();
        let congestion = congestion::factory(sending, question.clone());
        let without_sessions = tls.as_ref().map(without_sessions);
        let make = |tls| ServerTls::new(tls).map(Arc::new);
        let (tls, without_sessions) =
            (tls.map(make).transpose()?, without_sessions.map(make).transpose()?);
        Ok(Self {
            limits: limits.clone(),
            keys,
            tls,
            without_sessions,
            congestion,
            qlog,
            question,
            datagram_bytes: None,
            seed: None,
            wakeup: None,
        })
    }

    /// Sets what wakes the worker when a parked handshake can continue.
    pub(crate) fn with_wakeup(self, wakeup: &Arc<Wakeup>) -> Self {
        Self { wakeup: Some(wakeup.clone()), ..self }
    }

    /// Enables datagrams (RFC 9221), with this many bytes of send queue per connection.
    pub(crate) fn with_datagrams(self, bytes: u64) -> Self {
        Self { datagram_bytes: Some(usize::try_from(bytes).unwrap_or(usize::MAX)), ..self }
    }

    /// Enables datagrams if a feature that needs them is enabled.
    pub(crate) fn offering(self, config: &Config) -> Self {
        if config.webtransport {
            self.with_datagrams(config.limits.webtransport_datagram_bytes())
        } else {
            self
        }
    }

    /// Whether handshakes may have to wait.
    pub(super) fn parks(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.parking().is_some())
    }

    /// Returns the largest datagram that the library accepts; `None` without datagrams.
    pub(super) fn largest_received_datagram(&self) -> Option<u64> {
        self.datagram_bytes.map(|_| RECEIVED_DATAGRAM_BYTES.min(usize::from(u16::MAX)) as u64)
    }

    /// Returns the TLS of a connection with the receive window `receive`.
    pub(super) fn tls_with(&self, receive: u64) -> Option<Arc<ServerTls>> {
        if receive < first_window(&self.limits) {
            self.without_sessions.clone()
        } else {
            self.tls.clone()
        }
    }

    pub(super) fn takes_datagrams(&self) -> bool {
        self.datagram_bytes.is_some()
    }

    /// Sets the TLS configuration of new connections.
    pub(super) fn set_tls(&mut self, tls: ListenerTls) -> Result<Arc<ServerTls>, String> {
        let without_sessions = ServerTls::new(without_sessions(&tls))?;
        let tls = Arc::new(ServerTls::new(tls)?);
        (self.tls, self.without_sessions) = (Some(tls.clone()), Some(Arc::new(without_sessions)));
        Ok(tls)
    }

    #[cfg(test)]
    pub(crate) fn with_seed(self, seed: [u8; 32]) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Returns how many bidirectional streams the peer may open at first.
    pub(super) fn first_requests(&self, side: Side) -> u64 {
        self.limits.concurrent_streams().min(if side.is_server() {
            FIRST_REQUESTS
        } else {
            SERVER_REQUESTS
        })
    }

    /// Returns the transport configuration. `receive` is the initial receive window. The send
    /// window is set later.
    pub(super) fn transport(&self, side: Side, receive: u64) -> TransportConfig {
        let limits = &self.limits;
        let idle = IdleTimeout::try_from(limits.idle_timeout())
            .expect("invariant: the table allows at most an hour");
        let mut config = TransportConfig::default();
        config
            .max_concurrent_bidi_streams(varint(self.first_requests(side)))
            //= RFC 9114 section 6.2
            //# Therefore, the transport parameters sent by both clients and servers MUST allow the peer to create at least
            //# three unidirectional streams.
            // The limits table allows no smaller value.
            .max_concurrent_uni_streams(varint(limits.uni_streams()))
            .stream_receive_window(varint(limits.stream_window_bytes()))
            .receive_window(varint(receive))
            .send_window(limits.send_window_bytes().min(SMALLEST_SEND_WINDOW))
            .max_idle_timeout(Some(idle))
            .datagram_receive_buffer_size(self.datagram_bytes.map(|_| RECEIVED_DATAGRAM_BYTES))
            .datagram_send_buffer_size(self.datagram_bytes.unwrap_or(0));
        config.congestion_controller_factory(self.congestion.clone());
        config
    }

    /// Returns the configuration of a traced connection. quinn-proto ties a trace to a
    /// configuration, so each traced connection has its own.
    pub(super) fn traced(&self, side: Side, receive: u64, trace: &Trace) -> TransportConfig {
        let mut config = self.transport(side, receive);
        config.qlog_stream(Some(trace.transport()));
        config
    }

    /// Returns the server configuration for connections with the receive window `receive`.
    pub(super) fn server(&self, receive: u64, stats: &Arc<Stats>) -> Option<ServerConfig> {
        let mut server = ServerConfig::new(self.tls.clone()?, self.keys.token.clone());
        let mut tokens = ValidationTokenConfig::default();
        let limits = &self.limits;
        let remembered = limits.used_tokens();
        tokens.log(self.keys.token_log(remembered, stats.clone())).sent(if remembered > 0 {
            TOKENS_SENT
        } else {
            0
        });
        server
            .transport_config(Arc::new(self.transport(Side::Server, receive)))
            .validation_token_config(tokens)
            .incoming_buffer_size(limits.parked_handshake_bytes())
            .incoming_buffer_size_total(
                limits.parked_handshake_bytes().saturating_mul(limits.parked_handshakes()),
            );
        Some(server)
    }
}
