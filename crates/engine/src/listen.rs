//! Sockets that a server listens on, bound before any worker runs, so that what cannot be bound is known at once.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::config::Congestion;
use crate::tcp_congestion::{self, CongestionError};
use crate::udp::canonical;
use crate::udp_buffers::{UdpBuffers, WANTED_BYTES};

const TCP_BACKLOG: i32 = 4096;
/// How often a port that the kernel chose for TCP may turn out to be taken for UDP.
const PORT_ATTEMPTS: usize = 32;

/// What an address is bound for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transports {
    /// HTTP/1.1 in clear text on TCP.
    ClearTcp,
    /// HTTP/1.1 and HTTP/2 over TLS on TCP.
    SecureTcp,
    /// HTTP/3 on UDP.
    Quic,
    /// HTTP/1.1 and HTTP/2 over TLS on TCP, and HTTP/3 on UDP, on the same port.
    Secure,
}

/// How an address is bound.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// What for.
    pub transports: Transports,
    /// The congestion controller of TCP connections that are accepted here; `None` leaves the system's.
    pub congestion: Option<Congestion>,
    /// Others may have the port already, and the kernel spreads clients over all of them. For those who know them: otherwise it would go
    /// unnoticed that another server of the same user has the port.
    pub shared: bool,
}

/// The sockets of one address: a TCP socket for each worker and, where HTTP/3 is served, a UDP socket on the same port.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    secure: bool,
    sockets: Vec<Sockets>,
}

/// One worker's share of a [`Listener`].
#[derive(Debug)]
pub struct Sockets {
    pub(crate) address: SocketAddr,
    pub(crate) secure: bool,
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) udp: Option<UdpSocket>,
}

/// Why an address could not be bound as it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is taken, not this machine's, or not allowed.
    #[error("cannot listen on {address} ({transport}): {source}")]
    Address {
        /// The address asked for.
        address: SocketAddr,
        /// `TCP` or `UDP`.
        transport: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system does not give TCP connections the congestion controller that was asked for.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
}

impl BindError {
    fn tcp(address: SocketAddr) -> impl Fn(io::Error) -> Self {
        move |source| Self::Address { address, transport: "TCP", source }
    }

    fn udp(address: SocketAddr) -> impl Fn(io::Error) -> Self {
        move |source| Self::Address { address, transport: "UDP", source }
    }
}

impl Listener {
    /// Binds `address` for what `bind` says, for `workers` workers.
    ///
    /// Where there are both, TCP is bound first and UDP takes the same port, also when the kernel chooses it (port 0). `[::]` takes IPv4
    /// as well.
    ///
    /// # Errors
    ///
    /// When the address cannot be had, or the system has no such congestion controller for TCP or does not let this user choose it.
    pub fn bind(address: SocketAddr, workers: usize, bind: Bind) -> Result<Self, BindError> {
        let is_secure = bind.transports != Transports::ClearTcp;
        if bind.transports == Transports::Quic {
            let udp = bind_udp(address, workers, bind.shared)?;
            let bound = udp[0].local_addr().map(canonical).map_err(BindError::udp(address))?;
            return Ok(Self::new(bound, is_secure, udp.into_iter().map(|udp| (None, Some(udp)))));
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            let tcp = bind_tcp(address, workers, bind)?;
            let bound = local_address(address, &tcp[0])?;
            if bind.transports != Transports::Secure {
                return Ok(Self::new(bound, is_secure, tcp.into_iter().map(|tcp| (Some(tcp), None))));
            }
            match bind_udp(bound, workers, bind.shared) {
                Ok(udp) => return Ok(Self::new(bound, is_secure, tcp.into_iter().map(Some).zip(udp.into_iter().map(Some)))),
                // Somebody else has the UDP port of the number that the kernel chose for TCP.
                Err(BindError::Address { source, .. })
                    if address.port() == 0 && source.kind() == io::ErrorKind::AddrInUse && attempt < PORT_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Binds `address` for HTTP/1.1 and HTTP/2 over TLS on TCP, and HTTP/3 on UDP, for `workers` workers. See [`Listener::bind`].
    ///
    /// `congestion`: the controller of TCP connections that are accepted here; `None` leaves the system's.
    ///
    /// # Errors
    ///
    /// As those of [`Listener::bind`].
    pub fn secure(address: SocketAddr, workers: usize, congestion: Option<Congestion>) -> Result<Self, BindError> {
        Self::bind(address, workers, Bind { transports: Transports::Secure, congestion, shared: false })
    }

    /// Binds `address` for HTTP/1.1 in clear text on TCP.
    ///
    /// # Errors
    ///
    /// As those of [`Listener::bind`].
    pub fn clear(address: SocketAddr, workers: usize, congestion: Option<Congestion>) -> Result<Self, BindError> {
        Self::bind(address, workers, Bind { transports: Transports::ClearTcp, congestion, shared: false })
    }

    fn new(address: SocketAddr, secure: bool, sockets: impl Iterator<Item = (Option<TcpListener>, Option<UdpSocket>)>) -> Self {
        let sockets = sockets.map(|(tcp, udp)| Sockets { address, secure, tcp, udp }).collect();
        Self { address, secure, sockets }
    }

    /// The address bound, with the port that the kernel chose where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether TLS and HTTP/3 are spoken here.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The kernel's name of the congestion controller that TCP connections accepted here will have, as the sockets say.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn tcp_congestion(&self) -> io::Result<String> {
        let first = self.sockets.first().and_then(|first| first.tcp.as_ref()).ok_or(io::ErrorKind::NotFound)?;
        tcp_congestion::in_effect(&SockRef::from(first))
    }

    /// Asks the kernel for buffers of this size for each UDP socket, in either direction, and says what it grants: the least of all of
    /// them. `None` where there is no UDP socket. Sockets have buffers of 4 MiB, as far as the kernel grants them, without being asked.
    ///
    /// TCP sockets are left to the kernel, which sizes their buffers by what their path needs (`net.ipv4.tcp_rmem`, `tcp_wmem`).
    ///
    /// # Errors
    ///
    /// When the system does not even answer.
    pub fn set_udp_buffers(&self, wanted: usize) -> io::Result<Option<UdpBuffers>> {
        let sockets = self.sockets.iter().filter_map(|sockets| sockets.udp.as_ref());
        sockets.map(|socket| UdpBuffers::set(socket, wanted)).reduce(|one, other| Ok(one?.least(other?))).transpose()
    }

    /// The shares of the workers, in the order of their numbers.
    pub fn into_sockets(self) -> Vec<Sockets> {
        self.sockets
    }
}

/// A UDP socket of any port for connections that this side opens: of both families where there is IPv6.
pub(crate) fn client_socket() -> io::Result<UdpSocket> {
    let any = |address: SocketAddr| {
        let socket = socket(address, Type::DGRAM, Protocol::UDP, false)?;
        UdpBuffers::set(&socket, WANTED_BYTES)?;
        socket.bind(&address.into())?;
        Ok(UdpSocket::from(socket))
    };
    any((std::net::Ipv6Addr::UNSPECIFIED, 0).into()).or_else(|_: io::Error| any((std::net::Ipv4Addr::UNSPECIFIED, 0).into()))
}

fn bind_tcp(address: SocketAddr, workers: usize, bind: Bind) -> Result<Vec<TcpListener>, BindError> {
    let fail = BindError::tcp(address);
    if !bind.shared {
        refuse_if_taken(address, Type::STREAM, Protocol::TCP).map_err(&fail)?;
    }
    let mut address = address;
    let mut listeners = Vec::with_capacity(workers);
    for _ in 0..workers.max(1) {
        let socket = socket(address, Type::STREAM, Protocol::TCP, true).map_err(&fail)?;
        if let Some(congestion) = bind.congestion {
            // Accepted connections inherit it.
            tcp_congestion::choose(&socket, congestion)?;
        }
        socket.bind(&address.into()).and_then(|()| socket.listen(TCP_BACKLOG)).map_err(&fail)?;
        let listener = TcpListener::from(socket);
        address = local_address(address, &listener)?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn bind_udp(address: SocketAddr, workers: usize, shared: bool) -> Result<Vec<UdpSocket>, BindError> {
    let fail = BindError::udp(address);
    if !shared {
        refuse_if_taken(address, Type::DGRAM, Protocol::UDP).map_err(&fail)?;
    }
    let mut address = address;
    (0..workers.max(1))
        .map(|_| {
            let socket = socket(address, Type::DGRAM, Protocol::UDP, true)?;
            UdpBuffers::set(&socket, WANTED_BYTES)?;
            socket.bind(&address.into())?;
            let socket = UdpSocket::from(socket);
            address = socket.local_addr()?;
            Ok(socket)
        })
        .collect::<io::Result<_>>()
        .map_err(fail)
}

/// Sockets that share a port would silently share it with another server of the same user as well: one that does not share
/// finds out.
fn refuse_if_taken(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let probe = socket(address, kind, protocol, false)?;
    if kind == Type::STREAM {
        // Connections of an earlier server that linger in TIME_WAIT are no obstacle.
        probe.set_reuse_address(true)?;
    }
    probe.bind(&address.into())?;
    if kind == Type::STREAM { probe.listen(1) } else { Ok(()) }
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        // `[::]` is every address of both families; any other IPv6 address is just itself.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    if shared {
        socket.set_reuse_port(true)?;
        if kind == Type::STREAM {
            socket.set_reuse_address(true)?;
        }
    }
    Ok(socket)
}

fn local_address(asked: SocketAddr, listener: &TcpListener) -> Result<SocketAddr, BindError> {
    listener.local_addr().map(canonical).map_err(BindError::tcp(asked))
}
