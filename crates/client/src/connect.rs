//! A new connection: which versions of HTTP are tried, and in which order.

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
use crate::pool::Shared;
use crate::race::race;
use crate::{Error, Http3, Phase};

/// How long HTTP/3 may still take when TCP has failed: where nobody listens, nobody says so over UDP.
const LAST_CHANCE: Duration = Duration::from_secs(1);

type Attempt = Pin<Box<dyn Future<Output = Result<Connection, Error>>>>;

/// Opens a connection. Where HTTP/3 is tried, it has a head start; if TCP is there first, the attempt goes on beside it, and what comes
/// of it is for later requests.
pub(crate) async fn establish(shared: &Rc<Shared>, connections: &Rc<Connections>) -> Result<Connection, Error> {
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
        if matches!(tcp, Tcp::Waiting) && (http3_failure.is_some() || head_start.as_mut().poll(cx).is_ready()) {
            tcp = Tcp::Running(Box::pin(over_tcp(shared.clone(), connections.clone())));
        }
        if let Tcp::Running(attempt) = &mut tcp {
            match attempt.as_mut().poll(cx) {
                Poll::Ready(Ok(connection)) => return Poll::Ready(Ok(connection)),
                Poll::Ready(Err(error)) => tcp = Tcp::Failed(error, Box::pin(shared.handle.sleep(LAST_CHANCE))),
                Poll::Pending => {}
            }
        }
        if let Tcp::Failed(error, last_chance) = &mut tcp
            && (http3_failure.is_some() || last_chance.as_mut().poll(cx).is_ready())
        {
            return Poll::Ready(Err(error.clone()));
        }
        Poll::Pending
    })
    .await;
    match &first {
        Ok(connection) if connection.protocol() == Protocol::Http3 => {}
        _ if http3_failure.is_some() => connections.pause_http3(Some(shared.handle.now() + options.http3_pause)),
        _ => beside(shared, connections, http3),
    }
    first
}

/// What becomes of TCP beside HTTP/3.
enum Tcp {
    Waiting,
    Running(Attempt),
    /// What with, and until when HTTP/3 is waited for.
    Failed(Error, Pin<Box<Sleep>>),
}

/// Opens a connection over HTTP/3 for later requests, where there is reason to and nobody is at it.
pub(crate) fn improve(shared: &Rc<Shared>, connections: &Rc<Connections>) {
    if connections.has_http3() || connections.origin.socket.is_some() {
        return;
    }
    if let Some((host, port)) = connections.http3(&shared.options, shared.handle.now()) {
        beside(shared, connections, Box::pin(over_quic(shared.clone(), connections.clone(), host, port)));
    }
}

/// Goes on with an attempt while requests go over TCP. What comes of it is for later ones.
fn beside(shared: &Rc<Shared>, connections: &Rc<Connections>, http3: Attempt) {
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

async fn over_tcp(shared: Rc<Shared>, connections: Rc<Connections>) -> Result<Connection, Error> {
    let origin = &connections.origin;
    // In clear text there is no way to agree on HTTP/2: the server is known to speak it, or it is not tried.
    let protocol = if origin.secure { shared.options.tcp } else { shared.options.tcp.or(Some(Protocol::Http1)) };
    let remotes = lookup(&shared, &connections, &origin.host, origin.port).await?;
    connect(&shared, &connections, remotes, protocol).await
}

/// `host`, `port`: where the origin's HTTP/3 is. The certificate has to be the origin's.
async fn over_quic(shared: Rc<Shared>, connections: Rc<Connections>, host: String, port: u16) -> Result<Connection, Error> {
    let remotes = lookup(&shared, &connections, &host, port).await?;
    connect(&shared, &connections, remotes, Some(Protocol::Http3)).await
}

async fn connect(
    shared: &Rc<Shared>,
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

async fn lookup(shared: &Shared, connections: &Connections, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
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

/// Looks up the addresses of an origin again, for connections that are there. An answer that does not come in time is none.
pub(crate) async fn look_up_again(shared: Rc<Shared>, connections: Rc<Connections>) {
    let Origin { host, port, .. } = &connections.origin;
    connections.addresses.is_being_looked_up.set(true);
    let answer = shared.in_time(shared.options.connect_timeout, Phase::Connect, shared.options.resolve.lookup(host, *port)).await;
    connections.addresses.is_being_looked_up.set(false);
    if let Ok(Ok(found)) = answer {
        connections.learn_addresses(&found, &shared.options, shared.handle.now());
    }
}

fn no_address(host: &str) -> Error {
    Error::Lookup { host: host.to_owned(), source: Arc::new(std::io::Error::other("the name has no address")) }
}
