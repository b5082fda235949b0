//! HTTP/1.1, 2 and 3 on one port: workers, sockets, TLS and one request and response model over the three protocols.
//!
//! A [`Worker`] is one descriptor and one function, so any event loop can host it; [`Workers`] runs one on each of several threads.
//! A [`Handler`] answers requests, whichever protocol brought them. The engine knows nothing of configuration files, upstreams or
//! other languages: the faces built on it do.
//!
//! Start with [`Workers`] and [`Handler`]; [`Connector`] is the client's side.

#![deny(unsafe_code)]

mod admission;
mod body;
mod client;
mod config;
mod context;
mod deadlines;
mod dispatch;
mod field_line;
mod group;
mod handler;
mod http1;
mod http2;
mod http3;
mod incoming;
mod limits;
mod listen;
mod message;
mod meter;
mod progress;
mod qlog;
mod runtime;
mod schedule;
mod seats;
mod shared_fields;
#[cfg(test)]
mod simulation;
mod spare_memory;
mod stats;
mod tcp;
mod tcp_congestion;
mod tls;
mod transport;
mod udp;
mod udp_buffers;
mod upgrade;
pub mod websocket;
mod webtransport;
mod window_budget;
mod worker;
mod workers;

pub use body::{Body, BodyEnd, BodyError, Cut, room_for_content};
pub use client::{ConnectTimings, Connection, Connector, Error, Remote, Resumption, StatsProbe, Target, TransportStats};
pub use config::{AltSvc, Balancers, Budget, Config, Congestion, EarlyData};
pub use group::{Claim, Directory, DirectoryError, Group, Joining};
pub use handler::{Handler, KeepAlive, Responder};
pub use http3::{DatagramError, DatagramSender, SessionEnd, SessionStreamError, StreamError};
pub use incoming::Incoming;
pub use limits::{Limit, LimitError, Limits, Scope, Unit};
pub use listen::{Bind, BindError, Listener, Sockets, Transports};
pub use message::{Peer, Protocol, Request, Response};
pub use meter::ContentLimit;
pub use qlog::Qlog;
pub use runtime::{Handle, Sleep};
pub use shared_fields::{SharedFields, announced as announced_length};
pub use spare_memory::set_memory_release;
pub use stats::{Closer, Closes, Counter, Histogram, Stats};
pub use tcp_congestion::CongestionError;
pub use tls::{ACME_TLS, AsksClients, ClientCertificate, Identity, Policy, Sessions, TlsParameters, TlsSummary, TlsVersion, provider};
pub use transport::Secret;
pub use udp_buffers::UdpBuffers;
pub use upgrade::Upgrade;
pub use webtransport::{ConnectError, RecvStream, SendStream, WebTransport};
pub use worker::Worker;
pub use workers::{Control, Workers, embed_in_tokio};
