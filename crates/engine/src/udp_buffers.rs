//! Kernel buffers of UDP sockets.

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force, socket_recv_buffer_size, socket_send_buffer_size,
};

/// Default buffer size. The kernel's own default of 208 KiB overflows with a burst of handshakes,
/// or with two milliseconds of data at 1 Gbit/s; this size holds 30 ms of it.
pub(crate) const DEFAULT_BYTES: usize = 4 << 20;

/// Requested and granted sizes of a UDP socket's kernel buffers.
///
/// Without `CAP_NET_ADMIN`, the kernel grants at most the sysctls `net.core.rmem_max` and
/// `net.core.wmem_max`. Datagrams that do not fit while a worker is busy are lost, and QUIC takes
/// that for congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpBuffers {
    /// Requested bytes, for either direction.
    pub requested: usize,
    /// Granted bytes for datagrams that no worker has received yet.
    pub receive: usize,
    /// Granted bytes for datagrams that the network has not sent yet.
    pub send: usize,
}

impl UdpBuffers {
    /// Requests buffers of `requested` bytes, and reads back the granted sizes.
    pub(crate) fn set(socket: impl AsFd, requested: usize) -> io::Result<Self> {
        let socket = socket.as_fd();
        set_socket_recv_buffer_size_force(socket, requested)
            .or_else(|_| set_socket_recv_buffer_size(socket, requested))?;
        set_socket_send_buffer_size_force(socket, requested)
            .or_else(|_| set_socket_send_buffer_size(socket, requested))?;
        // Linux includes its bookkeeping: it doubles the requested size and reports the double
        // (socket(7)).
        Ok(Self {
            requested,
            receive: socket_recv_buffer_size(socket)? / 2,
            send: socket_send_buffer_size(socket)? / 2,
        })
    }

    /// Returns the sysctls to raise if the kernel granted less than requested.
    pub fn sysctls_to_raise(&self) -> impl Iterator<Item = &'static str> {
        let directions = [("net.core.rmem_max", self.receive), ("net.core.wmem_max", self.send)];
        let requested = self.requested;
        directions
            .into_iter()
            .filter(move |(_, granted)| *granted < requested)
            .map(|(name, _)| name)
    }

    /// Returns the smaller granted sizes of both.
    pub(crate) fn least(self, other: Self) -> Self {
        Self {
            requested: self.requested.max(other.requested),
            receive: self.receive.min(other.receive),
            send: self.send.min(other.send),
        }
    }
}
