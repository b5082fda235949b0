//! A UDP socket with batched receive, GRO, GSO and ECN.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use bytes::BytesMut;
use mio::Interest;
use mio::unix::SourceFd;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, UdpSockRef, UdpSocketState};

use crate::runtime::{ReactorHandle, Registration};
use crate::transport::{Datagram, Ecn, Transmit};

/// Largest datagram, or train of datagrams joined by GRO, in bytes.
const MAX_DATAGRAM: usize = 65_535;

pub(crate) struct UdpSocket {
    socket: std::net::UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
    registration: Registration,
    /// Whether the socket was full and the reactor watches it for writability. Otherwise it does
    /// not: each datagram that leaves would wake the worker needlessly.
    awaits_writable: Cell<bool>,
}

/// Buffers for one batch, shared by all sockets of a worker. Memory that no datagram has filled is
/// never touched.
pub(crate) struct ReceiveBuffers {
    storage: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
}

impl ReceiveBuffers {
    pub(crate) fn new() -> Self {
        Self {
            storage: vec![0; BATCH_SIZE * MAX_DATAGRAM],
            meta: [RecvMeta::default(); BATCH_SIZE],
        }
    }

    /// Returns a buffer for one datagram, or for one message from another process.
    pub(crate) fn one(&mut self) -> &mut [u8] {
        &mut self.storage[..MAX_DATAGRAM]
    }
}

impl UdpSocket {
    pub(crate) fn new(socket: std::net::UdpSocket, reactor: &ReactorHandle) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        let registration =
            reactor.register(&mut SourceFd(&socket.as_raw_fd()), Interest::READABLE)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, state, address, registration, awaits_writable: Cell::new(false) })
    }

    /// Returns the local address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// Returns the largest number of datagrams in one train.
    pub(crate) fn max_segments(&self) -> usize {
        // A train must fit into the length field of one datagram.
        const LARGEST_MTU_COMMONLY_SEEN: usize = 1500;
        self.state.max_gso_segments().clamp(1, MAX_DATAGRAM / LARGEST_MTU_COMMONLY_SEEN)
    }

    pub(crate) fn is_readable(&self) -> bool {
        self.registration.readiness().is_readable()
    }

    pub(crate) fn is_writable(&self) -> bool {
        !self.awaits_writable.get() || self.registration.readiness().is_writable()
    }

    /// Receives one batch and passes its datagrams to `take`. Returns whether there may be more.
    ///
    /// `separately`: whether each datagram gets memory of its own. Otherwise one that is kept keeps
    /// the whole train that it arrived in, up to 64 KiB.
    pub(crate) fn receive(
        &self,
        buffers: &mut ReceiveBuffers,
        separately: bool,
        mut take: impl FnMut(Datagram),
    ) -> bool {
        let mut slices = [const { None }; BATCH_SIZE];
        for (slice, chunk) in slices.iter_mut().zip(buffers.storage.chunks_exact_mut(MAX_DATAGRAM))
        {
            *slice = Some(IoSliceMut::new(chunk));
        }
        let mut slices =
            slices.map(|slice| slice.expect("invariant: there is storage for each slice"));
        let count =
            match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut buffers.meta) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.registration.readiness().clear_readable();
                    return false;
                }
                // The error belongs to an earlier datagram; the next call receives again.
                Err(error) if is_of_another_datagram(&error) => return true,
                // For example out of memory: an immediate retry would fail too, and could take all
                // of the worker's processor time.
                Err(_) => {
                    self.registration.readiness().clear_readable();
                    return false;
                }
            };
        // The kernel returns an incomplete batch only when its queue is empty; later datagrams
        // raise an event. (It also stops at an error, but an unconnected socket keeps none.)
        let more = count == BATCH_SIZE;
        if !more {
            self.registration.readiness().clear_readable();
        }
        for (meta, slice) in buffers.meta.iter().zip(&slices).take(count) {
            let mut pass = |data| {
                take(Datagram {
                    remote: canonical(meta.addr),
                    local_ip: meta.dst_ip,
                    ecn: meta.ecn.map(from_codepoint),
                    data,
                });
            };
            let received = &slice[..meta.len];
            if separately {
                received.chunks(meta.stride.max(1)).for_each(|data| pass(BytesMut::from(data)));
                continue;
            }
            let mut data = BytesMut::from(received);
            while !data.is_empty() {
                pass(data.split_to(meta.stride.clamp(1, data.len())));
            }
        }
        more
    }

    /// Sends a train. On `WouldBlock` the caller sends it again once the socket is writable.
    ///
    /// If the kernel cannot segment a train, as on some devices, tunnels and sockets, its datagrams
    /// are sent one by one, and the library makes no more trains on this socket.
    pub(crate) fn send(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        match (self.try_send(transmit, contents), transmit.segment_size) {
            (Err(error), Some(segment)) if segment < contents.len() && is_refusal(&error) => {
                let single = Transmit { segment_size: None, ..transmit.clone() };
                // Datagrams that a full socket rejects here are lost, as on any link.
                contents
                    .chunks(segment)
                    .try_for_each(|datagram| self.try_send(&single, datagram))
                    .or_else(|error| match error.kind() {
                        io::ErrorKind::WouldBlock => Ok(()),
                        _ => Err(error),
                    })
            }
            (result, _) => result,
        }
    }

    fn try_send(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        let result = self.state.try_send(
            UdpSockRef::from(&self.socket),
            &quinn_udp::Transmit {
                destination: if self.address.is_ipv6() {
                    mapped(transmit.remote)
                } else {
                    transmit.remote
                },
                ecn: transmit.ecn.map(to_codepoint),
                contents,
                segment_size: transmit.segment_size,
                src_ip: transmit.local_ip,
            },
        );
        match &result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.registration.readiness().clear_writable();
                self.await_room(true)?;
            }
            _ => self.await_room(false)?,
        }
        result
    }

    fn await_room(&self, awaits: bool) -> io::Result<()> {
        if self.awaits_writable.get() != awaits {
            let interest =
                if awaits { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            self.registration.change(&mut SourceFd(&self.socket.as_raw_fd()), interest)?;
            self.awaits_writable.set(awaits);
        }
        Ok(())
    }
}

/// Whether an error is an ICMP error caused by an earlier datagram (ip(7)), or a call interrupted
/// by a signal.
fn is_of_another_datagram(error: &io::Error) -> bool {
    use libc::{
        EACCES, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EINTR, EMSGSIZE, ENETUNREACH, ENONET,
        ENOPROTOOPT, EPROTO,
    };
    matches!(
        error.raw_os_error(),
        Some(
            EACCES
                | ECONNREFUSED
                | EHOSTDOWN
                | EHOSTUNREACH
                | EINTR
                | EMSGSIZE
                | ENETUNREACH
                | ENONET
                | ENOPROTOOPT
                | EPROTO
        )
    )
}

/// Whether Linux cannot segment a train. This cannot be known beforehand.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

/// Returns IPv4 addresses as such, even if an IPv6 socket received from them.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        // Unchanged: a link-local address needs its scope.
        IpAddr::V6(_) => address,
    }
}

/// Returns IPv4 addresses in the form that an IPv6 socket sends to.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        SocketAddr::V6(_) => address,
    }
}

fn from_codepoint(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}

fn to_codepoint(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::runtime::Reactor;

    /// Makes the kernel reject trains: it segments none without checksums.
    #[expect(unsafe_code, reason = "no library offers SO_NO_CHECK")]
    fn refuse_trains(socket: &std::net::UdpSocket) {
        let on: libc::c_int = 1;
        let size = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel reads an integer of the size said.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                size,
            )
        };
        assert_eq!(result, 0);
    }

    /// Sends trains of three datagrams over a socket. Returns the lengths received, and the number
    /// of datagrams that a later train may have.
    fn trains(count: usize, prepare: impl FnOnce(&std::net::UdpSocket)) -> (Vec<usize>, usize) {
        let (reactor, _waker) = Reactor::new().unwrap();
        let receiver = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        prepare(&sender);
        let sender = UdpSocket::new(sender, reactor.handle()).unwrap();
        let contents = [7; 2500];
        let remote = receiver.local_addr().unwrap();
        let transmit = Transmit {
            remote,
            local_ip: None,
            ecn: Some(Ecn::Ect0),
            size: contents.len(),
            segment_size: Some(1000),
        };
        let mut sizes = Vec::new();
        for _ in 0..count {
            sender.send(&transmit, &contents).unwrap();
            sizes.extend((0..3).map(|_| receiver.recv(&mut [0; 4096]).unwrap()));
        }
        (sizes, sender.max_segments())
    }

    #[test]
    fn unsegmentable_train_arrives_as_datagrams() {
        let (sizes, segments) = trains(2, refuse_trains);
        assert_eq!(sizes, [1000, 1000, 500, 1000, 1000, 500]);
        assert_eq!(segments, 1, "more trains would be made only to be refused");
    }

    #[test]
    fn train_is_cut_by_the_kernel_where_it_can() {
        let (sizes, segments) = trains(1, |_| ());
        assert_eq!(sizes, [1000, 1000, 500]);
        assert!(segments > 1);
    }
}
