//! New connections: which HTTP versions are tried, and in which order.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use pronghorn_engine::{Connection, Protocol, Sleep, Target};

use crate::connections::Connections;
use crate::origin::Origin;
use crate::pool::state::PoolState;
use crate::race::race;
use crate::{Error, Http3, Phase};

/// How much longer HTTP/3 may take after TCP has failed. If no server listens on the UDP port, the
/// client receives no answer.
const HTTP3_GRACE: Duration = Duration::from_secs(1);

type Attempt = Pin<Box<dyn Future<Output = Result<Connection, Error>>>>;

/// Opens a connection. If HTTP/3 is tried, it gets a head start. If TCP connects first, the HTTP/3
/// attempt continues in the background, and its connection serves later requests.
pub(crate) async fn establish(
    shared: &Rc<PoolState>,
    connections: &Rc<Connections>,
) -> Result<Connection, Error> {
    let options = &shared.options;
    if let Some(path) = &connections.origin.socket {
        let protocol = options.tcp.unwrap_or(Protocol::Http1);
        return Ok(shared.connector.connect_unix(path, protocol).await?);
    }
    let Some((host, port)) = connections.http3(options, shared.handle.now()) else {
        return over_tcp(shared.clone(), connections.clone()).await;
    };
    let mut http3: Attempt = Box::pin(over_quic(shared.clone(), connections.clone(), host, port));
    if options.http3 == Http3::Only {
        return http3.await;
    }
    let mut tcp = Tcp::Waiting;
    let mut http3_failure = None;
    let mut head_start = pin!(shared.handle.sleep(options.http3_head_start));
    let first = poll_fn(|cx| {
        if http3_failure.is_none() {
            match http3.as_mut().poll(cx) {
                Poll::Ready(Ok(connection)) => return Poll::Ready(Ok(connection)),
                Poll::Ready(Err(error)) => http3_failure = Some(error),
                Poll::Pending => {}
            }
        }
        if matches!(tcp, Tcp::Waiting)
            && (http3_failure.is_some() || head_start.as_mut().poll(cx).is_ready())
        {
            tcp = Tcp::Running(Box::pin(over_tcp(shared.clone(), connections.clone())));
        }
        if let Tcp::Running(attempt) = &mut tcp {
            match attempt.as_mut().poll(cx) {
                Poll::Ready(Ok(connection)) => return Poll::Ready(Ok(connection)),
                Poll::Ready(Err(error)) => {
                    tcp = Tcp::Failed(error, Box::pin(shared.handle.sleep(HTTP3_GRACE)));
                }
                Poll::Pending => {}
            }
        }
        if let Tcp::Failed(error, grace) = &mut tcp
            && (http3_failure.is_some() || grace.as_mut().poll(cx).is_ready())
        {
            return Poll::Ready(Err(error.clone()));
        }
        Poll::Pending
    })
    .await;
    match &first {
        Ok(connection) if connection.protocol() == Protocol::Http3 => {}
        _ if http3_failure.is_some() => {
            connections.pause_http3(Some(shared.handle.now() + options.http3_pause));
        }
        _ => continue_http3(shared, connections, http3),
    }
    first
}

/// State of the TCP attempt beside HTTP/3.
enum Tcp {
    Waiting,
    Running(Attempt),
    /// The error, and how long HTTP/3 may still take.
    Failed(Error, Pin<Box<Sleep>>),
}

/// Opens an HTTP/3 connection for later requests, if HTTP/3 is to be tried and no attempt is
/// running.
pub(crate) fn try_http3(shared: &Rc<PoolState>, connections: &Rc<Connections>) {
    if connections.has_http3() || connections.origin.socket.is_some() {
        return;
    }
    if let Some((host, port)) = connections.http3(&shared.options, shared.handle.now()) {
        continue_http3(
            shared,
            connections,
            Box::pin(over_quic(shared.clone(), connections.clone(), host, port)),
        );
    }
}

/// Continues an attempt while requests use TCP. Its connection serves later requests.
fn continue_http3(shared: &Rc<PoolState>, connections: &Rc<Connections>, http3: Attempt) {
    let (shared, connections) = (shared.clone(), connections.clone());
    connections.set_trying_http3(true);
    let handle = shared.handle.clone();
    handle.spawn(async move {
        let connected = shared.in_time(shared.options.connect_timeout, Phase::Connect, http3).await;
        connections.set_trying_http3(false);
        match connected {
            Ok(Ok(connection)) => connections.put(connection, &shared),
            _ => connections.pause_http3(Some(shared.handle.now() + shared.options.http3_pause)),
        }
    });
}

async fn over_tcp(
    shared: Rc<PoolState>,
    connections: Rc<Connections>,
) -> Result<Connection, Error> {
    let origin = &connections.origin;
    // Cleartext has no protocol negotiation: HTTP/2 is used only if the options say that the server
    // supports it.
    let protocol = if origin.secure {
        shared.options.tcp
    } else {
        shared.options.tcp.or(Some(Protocol::Http1))
    };
    let remotes = lookup(&shared, &connections, &origin.host, origin.port).await?;
    connect(&shared, &connections, remotes, protocol).await
}

/// `host`, `port`: the origin's HTTP/3 endpoint. The certificate must be valid for the origin.
async fn over_quic(
    shared: Rc<PoolState>,
    connections: Rc<Connections>,
    host: String,
    port: u16,
) -> Result<Connection, Error> {
    let remotes = lookup(&shared, &connections, &host, port).await?;
    connect(&shared, &connections, remotes, Some(Protocol::Http3)).await
}

async fn connect(
    shared: &Rc<PoolState>,
    connections: &Rc<Connections>,
    remotes: Vec<SocketAddr>,
    protocol: Option<Protocol>,
) -> Result<Connection, Error> {
    let origin = &connections.origin;
    let attempts = remotes.into_iter().map(|remote| {
        let (server_name, resumption) = (origin.host.clone(), shared.options.resumption);
        let target = Target { remote, server_name, protocol, secure: origin.secure, resumption };
        async move { shared.connector.connect(&target).await }
    });
    match race(&shared.handle, shared.options.address_head_start, attempts).await {
        Some(connected) => Ok(connected?),
        None => Err(no_address(&origin.host)),
    }
}

async fn lookup(
    shared: &PoolState,
    connections: &Connections,
    host: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, Error> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found = shared.options.resolve.lookup(host, port).await;
    if shared.options.resolve_every.is_some() && connections.is_at(host, port) {
        if let Ok(found) = &found {
            connections.learn_addresses(found, &shared.options, shared.handle.now());
        }
        let known = connections.addresses.in_turn();
        if !known.is_empty() {
            return Ok(known);
        }
    }
    found.map_err(|source| Error::Lookup { host: host.to_owned(), source: Arc::new(source) })
}

/// Looks up an origin's addresses again, for its open connections. A lookup that times out is
/// ignored.
pub(crate) async fn look_up_again(shared: Rc<PoolState>, connections: Rc<Connections>) {
    let Origin { host, port, .. } = &connections.origin;
    connections.addresses.is_being_looked_up.set(true);
    let answer = shared
        .in_time(
            shared.options.connect_timeout,
            Phase::Connect,
            shared.options.resolve.lookup(host, *port),
        )
        .await;
    connections.addresses.is_being_looked_up.set(false);
    if let Ok(Ok(found)) = answer {
        connections.learn_addresses(&found, &shared.options, shared.handle.now());
    }
}

fn no_address(host: &str) -> Error {
    Error::Lookup {
        host: host.to_owned(),
        source: Arc::new(std::io::Error::other("the host name has no addresses")),
    }
}
