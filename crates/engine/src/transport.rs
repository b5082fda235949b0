//! The engine's interface to a QUIC transport.
//!
//! [`Transport`] is one endpoint on one UDP socket, sans-IO: datagrams are passed to
//! [`Transport::handle_datagram`] and taken from [`Transport::poll_transmit`]; events are taken
//! from [`Transport::poll_event`]. Only [`quinn`] refers to a QUIC library.

mod congestion;
mod connection_id;
#[cfg(test)]
mod contract;
mod first_flight;
mod frames;
mod initial_keys;
mod interface;
mod keys;
mod padding;
mod parked_session;
mod quinn;
mod ready_tls;
mod server_parameters;
mod session;
mod token_keys;
mod types;

pub(crate) use congestion::SendConfig;
use connection_id::ConnectionIds;
pub(crate) use connection_id::{is_first_flight, named_by_long_header, steer};
pub(crate) use interface::{Event, Transport};
pub(crate) use keys::EndpointKeys;
pub use keys::Secret;
pub(crate) use quinn::{ClientTls, Quinn, QuinnConfig};
pub(crate) use types::{
    Closed, ConnectionKey, Datagram, DatagramWrite, Dir, Ecn, Order, Read, Transmit, Write,
};
