//! HTTP/1.1 with clients, on top of hyper.

mod chunked;
mod closing;
mod exchange;
mod head;
mod request_body;
mod response;
mod response_buffer;
mod serve;
mod service;
mod tunnel;
mod wire;
mod wire_state;

pub(crate) use chunked::Chunked;
pub(crate) use closing::{PeerExpectation, close};
pub(crate) use exchange::Http1Exchange;
pub(crate) use head::Malformed;
pub(crate) use request_body::Http1BodyLink;
pub(crate) use serve::serve;
pub(crate) use tunnel::{Tunnel, TunnelEnd, TunnelOutcome, run as run_tunnel};
pub(crate) use wire_state::Persistence;
