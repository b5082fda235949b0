//! HTTP/1.1, HTTP/2 and HTTP/3 on one port: sockets, TLS, worker threads, and one request and
//! response model for the three protocols.
//!
//! A [`Worker`] owns the sockets, the connections and the futures of one thread. It has no event
//! loop of its own. To its host it is one file descriptor, readable when there is work, and one
//! function, [`Worker::turn`], which does what is ready within a [`Budget`] and returns. So any
//! event loop can host a worker.
//!
//! A [`Handler`] answers requests, whichever protocol carried them. It gets a [`Request`] and a
//! [`Responder`] on the worker's thread.
//!
//! The engine reads no configuration files and knows neither upstreams nor other languages. Crates
//! built on it do.
//!
//! Start with [`Workers`] and [`Handler`]. [`Connector`] is the client side.
//!
//! # Run workers on their own threads
//!
//! [`Workers::start`] starts one thread for each worker of a [`Group`]. Each thread has a tokio
//! runtime, so handlers can use tokio. This is the simplest way to serve: see the example at
//! [`Workers`].
//!
//! # Embed a worker in a tokio runtime
//!
//! [`embed_in_tokio`] runs a worker inside an existing runtime, next to other tasks.
//!
//! # Embed a worker in another event loop
//!
//! Watch the descriptor ([`Worker`] implements [`AsFd`](std::os::fd::AsFd)) and call
//! [`Worker::turn`] whenever it is readable. Timers need no extra care: they make the descriptor
//! readable too. A host without an event loop blocks in [`Worker::wait`]:
//!
//! ```no_run
//! use std::net::Ipv4Addr;
//! use std::time::Instant;
//!
//! use http::StatusCode;
//! use pronghorn_engine::{
//!     Config, Group, Identity, Listener, Request, Responder, Response, Worker,
//! };
//!
//! # fn identity() -> Identity { unimplemented!() }
//! let config = Config::default();
//! let listener = Listener::secure((Ipv4Addr::LOCALHOST, 8443).into(), 1, config.congestion)?;
//! let hello = |_: Request, responder: Responder| {
//!     responder.send(Response::new(StatusCode::OK).with_body("hello\n"));
//! };
//! let mut worker = Worker::new(0, &Group::new(1), config, hello)?;
//! for sockets in listener.into_sockets() {
//!     worker.listen(sockets, Some(&identity()))?;
//! }
//! while !worker.is_finished() {
//!     worker.wait(None)?;
//!     worker.turn(Instant::now())?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod admission;
mod body;
mod body_limits;
mod client;
mod config;
mod connection_fields;
mod connection_limits;
mod contained;
mod context;
mod date;
mod deadlines;
mod dispatch;
mod early_data;
mod field_line;
mod gauge;
mod group;
mod handler;
mod handshake_signal;
mod http1;
mod http2;
mod http3;
mod incoming;
mod limits;
mod listen;
mod memory;
mod memory_release;
mod message;
mod progress;
mod qlog;
mod responder;
mod response_head;
mod runtime;
mod schedule;
mod shared_fields;
mod shutdown;
#[cfg(test)]
mod simulation;
mod stats;
mod tcp;
mod tcp_congestion;
mod tls;
mod transport;
mod transport_stats;
mod udp;
mod udp_buffers;
mod upgrade;
pub mod websocket;
mod webtransport;
mod window_budget;
mod worker;
mod workers;

pub use body::{AbortHandle, Body, BodyEnd, BodyError, send_capacity};
pub use body_limits::ContentLimit;
pub use client::{
    ClientRequest, ConnectTimings, Connection, Connector, Error, Remote, Resumption, StatsProbe,
    Target,
};
pub use config::{AltSvc, Budget, Config, Congestion, EarlyData, TrustedProxies};
pub use early_data::EarlyRequest;
pub use group::{Claim, Directory, DirectoryError, Group, JoinGuard};
pub use handler::Handler;
pub use http3::{DatagramError, DatagramSender, SessionEnd, SessionStreamError, StreamError};
pub use incoming::Incoming;
pub use limits::{Limit, LimitError, Limits, Scope, Unit};
pub use listen::{Bind, BindError, Listener, Sockets, Transports};
pub use memory::{MemoryBudget, MemoryHold, MemoryPressure, PressureChange, memory_pressure};
pub use memory_release::set_memory_release_hook;
pub use message::{Peer, Protocol, Request, Response};
pub use qlog::Qlog;
pub use responder::{KeepAlive, Responder};
pub use runtime::{Handle, Sleep, is_in_turn};
pub use shared_fields::{SharedFields, announced_length};
pub use stats::{Closer, Closes, Counter, Histogram, Stats};
pub use tcp_congestion::CongestionError;
pub use tls::{
    ACME_TLS, ClientCertificate, ClientCertificatePolicy, Identity, OnSessions, Policy,
    SessionName, Sessions, SharedSession, SharedSessions, SigningFailed, SlowKeys, TlsParameters,
    TlsSummary, TlsVersion, provider,
};
pub use transport::Secret;
pub use transport_stats::TransportStats;
pub use udp_buffers::UdpBuffers;
pub use upgrade::Upgrade;
pub use webtransport::{ConnectError, RecvStream, SendStream, WebTransport};
pub use worker::Worker;
pub use workers::{Control, Workers, embed_in_tokio};
