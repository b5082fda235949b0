//! The transports under test.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::config::{Config, Congestion};
use crate::connection_limits::ConnectionCounts;
use crate::limits::{self, LimitError};
use crate::simulation::tls::Tls;
use crate::stats::Stats;
use crate::tls::ListenerTls;
use crate::transport::connection_id::ConnectionIds;
use crate::transport::{ClientTls, EndpointKeys, Quinn, QuinnConfig, SendConfig, Transport};

/// Settings of a test's endpoint.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) streams: u32,
    pub(super) stream_window_bytes: u64,
    pub(super) connection_window_bytes: u64,
    pub(super) send_window_bytes: u64,
    pub(super) open_handshakes: usize,
    pub(super) connections: usize,
    pub(super) idle_timeout: Duration,
    pub(super) congestion: Congestion,
    pub(super) initial_datagrams: u16,
    /// Bytes of datagrams that may be queued, if datagrams are enabled.
    pub(super) datagram_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: 100,
            stream_window_bytes: 100_000,
            connection_window_bytes: 1_000_000,
            send_window_bytes: 1_000_000,
            open_handshakes: 1000,
            connections: 1000,
            idle_timeout: Duration::from_secs(30),
            congestion: Congestion::default(),
            initial_datagrams: Config::default().initial_window_datagrams,
            datagram_bytes: None,
        }
    }
}

impl Limits {
    fn table(&self) -> Result<limits::Limits, LimitError> {
        limits::Limits::default()
            .with_concurrent_streams(self.streams.into())?
            .with_stream_window_bytes(self.stream_window_bytes)?
            .with_connection_window_bytes(self.connection_window_bytes)?
            .with_send_window_bytes(self.send_window_bytes)?
            .with_open_handshakes(self.open_handshakes as u64)?
            .with_connections(self.connections as u64)?
            .with_idle_timeout(self.idle_timeout)
    }
}

/// Creates related endpoints: each server knows the tokens and connection IDs of the others.
pub(super) trait Subject: Sized {
    type Transport: Transport;

    fn new() -> Self;
    fn server(&self, limits: &Limits, worker: u8) -> Self::Transport;
    fn client(&self, limits: &Limits) -> Self::Transport;
    fn tls(&self) -> &ClientTls;
    fn ids(&self) -> &ConnectionIds;
}

pub(super) struct OnQuinn {
    keys: EndpointKeys,
    server_tls: ListenerTls,
    client_tls: ClientTls,
}

impl OnQuinn {
    fn with(tls: Tls) -> Self {
        let client_tls = ClientTls::new(Arc::new(tls.client)).unwrap();
        Self {
            keys: EndpointKeys::from_rng(&mut StdRng::seed_from_u64(0)),
            server_tls: tls.server,
            client_tls,
        }
    }

    fn endpoint(&self, limits: &Limits, worker: u8, tls: Option<ListenerTls>) -> Quinn {
        let table = limits.table().unwrap();
        let sending = SendConfig {
            congestion: limits.congestion,
            initial_datagrams: limits.initial_datagrams,
        };
        let seed = [worker, u8::from(tls.is_some())].repeat(16).try_into().unwrap();
        let config = QuinnConfig::new(&table, sending, tls, self.keys.clone(), None).unwrap();
        let config = match limits.datagram_bytes {
            Some(bytes) => config.with_datagrams(bytes),
            None => config,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        Quinn::new(
            config.with_seed(seed),
            worker,
            address,
            false,
            Arc::<Stats>::default(),
            ConnectionCounts::new(),
            Rc::default(),
        )
    }
}

impl Subject for OnQuinn {
    type Transport = Quinn;

    fn new() -> Self {
        Self::with(Tls::new(&Config::default()))
    }

    fn server(&self, limits: &Limits, worker: u8) -> Quinn {
        self.endpoint(limits, worker, Some(self.server_tls.clone()))
    }

    fn client(&self, limits: &Limits) -> Quinn {
        self.endpoint(limits, 0, None)
    }

    fn tls(&self) -> &ClientTls {
        &self.client_tls
    }

    fn ids(&self) -> &ConnectionIds {
        self.keys.ids()
    }
}

/// The same, with all handshakes parked: each waits for a store of sessions.
pub(super) struct OnParkedQuinn(OnQuinn);

impl Subject for OnParkedQuinn {
    type Transport = Quinn;

    fn new() -> Self {
        Self(OnQuinn::with(Tls::parked(&Config::default())))
    }

    fn server(&self, limits: &Limits, worker: u8) -> Quinn {
        self.0.server(limits, worker)
    }

    fn client(&self, limits: &Limits) -> Quinn {
        self.0.client(limits)
    }

    fn tls(&self) -> &ClientTls {
        self.0.tls()
    }

    fn ids(&self) -> &ConnectionIds {
        self.0.ids()
    }
}
