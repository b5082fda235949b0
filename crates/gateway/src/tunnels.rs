//! Requests that go on in another protocol: which may, how many, and for how long nothing may happen.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, RETRY_AFTER, UPGRADE};
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::{Frame, SizeHint};
use ipnet::IpNet;
use pronghorn_engine::{BodyError, Handle, Incoming, Peer, Protocol, Response, Sleep, Upgrade};

use crate::client_address::{client_address, network_of};
use crate::config::Upgrades;
use crate::plan::{ActionPlan, RoutePlan, text};
use crate::proxy::Observer;

const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Those of a route, over all workers.
pub(crate) struct Tunnels {
    settings: Upgrades,
    observer: Arc<Observer>,
    running: Mutex<Running>,
}

/// How many run. No more entries than tunnels.
#[derive(Default)]
struct Running {
    all: u32,
    clients: HashMap<IpAddr, u32>,
}

/// Counted over all routes, workers and reloads.
#[derive(Default)]
pub(crate) struct TunnelCounters {
    open: AtomicU64,
    of_one_client: AtomicU64,
    of_all: AtomicU64,
    timed_out: AtomicU64,
}

/// What was counted of requests that went on in another protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunnelCounts {
    /// Open now, those included whose server has not answered yet.
    pub open: u64,
    /// Refused because their client had as many as it may.
    pub of_one_client: u64,
    /// Refused because their route had.
    pub of_all: u64,
    /// Given up because nothing came from either side.
    pub timed_out: u64,
}

impl TunnelCounts {
    pub(crate) fn of(counters: &TunnelCounters) -> Self {
        let TunnelCounters { open, of_one_client, of_all, timed_out } = counters;
        let [open, of_one_client, of_all, timed_out] = [open, of_one_client, of_all, timed_out].map(|count| count.load(Ordering::Relaxed));
        Self { open, of_one_client, of_all, timed_out }
    }
}

/// Why a request may not go on in another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The route does not have it.
    NotSpoken,
    /// Its client has as many as it may.
    OfClient,
    /// The route has.
    OfRoute,
}

impl From<Refused> for Response {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotSpoken => text(StatusCode::NOT_IMPLEMENTED, "this protocol is not spoken here\n"),
            Refused::OfClient => {
                text(StatusCode::TOO_MANY_REQUESTS, "too many upgrades of this client are open\n").with_header(RETRY_AFTER, 1.into())
            }
            Refused::OfRoute => text(StatusCode::SERVICE_UNAVAILABLE, "too many upgrades are open\n").with_header(RETRY_AFTER, 1.into()),
        }
    }
}

/// What becomes of a request's wish to go on in another protocol: its place, or none and it is an ordinary one. Where the route does not
/// have the protocol, over HTTP/1.1 nothing says any more that it was asked for.
///
/// # Errors
///
/// When it may not.
pub(crate) fn admit(
    route: &RoutePlan,
    wish: &mut Option<Upgrade>,
    headers: &mut HeaderMap,
    body: &mut Incoming,
    peer: &Peer,
    trusted_proxies: &[IpNet],
) -> Result<Option<Tunnel>, Refused> {
    let Some(upgrade) = wish else { return Ok(None) };
    let tunnels = route.tunnels.as_ref().filter(|tunnels| tunnels.settings.protocols.iter().any(|one| *one.0 == *upgrade.protocol()));
    if let Some(tunnels) = tunnels {
        return tunnels.begin(network_of(client_address(peer.remote, headers, trusted_proxies), 64)).map(Some);
    }
    if peer.protocol == Protocol::Http1 {
        (*wish, *body) = (None, Incoming::empty());
        for name in [CONNECTION, UPGRADE, HTTP2_SETTINGS] {
            headers.remove(name);
        }
        return Ok(None);
    }
    // What says no to all says no to this one too.
    let is_refused = match &route.action {
        ActionPlan::Respond { status, .. } | ActionPlan::Redirect { status, .. } => !status.is_success(),
        ActionPlan::Files(_) | ActionPlan::Proxy(_) | ActionPlan::Application(_) => false,
    };
    if is_refused { Ok(None) } else { Err(Refused::NotSpoken) }
}

/// An answer that grants no tunnel, so that it does not look as if it did: over HTTP/2 and 3 any success would.
pub(crate) fn refusal(peer: &Peer, answer: Response) -> Response {
    if peer.protocol != Protocol::Http1 && answer.status.is_success() {
        return Refused::NotSpoken.into();
    }
    answer
}

impl Tunnels {
    pub(crate) fn new(settings: Upgrades, observer: Arc<Observer>) -> Self {
        Self { settings, observer, running: Mutex::default() }
    }

    /// A place for one more of `client`.
    fn begin(self: &Arc<Self>, client: IpAddr) -> Result<Tunnel, Refused> {
        let counts = &self.observer.counts.tunnels;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let (refused, count) = if running.all >= self.settings.open {
            (Refused::OfRoute, &counts.of_all)
        } else if running.clients.get(&client).is_some_and(|count| *count >= self.settings.per_client) {
            (Refused::OfClient, &counts.of_one_client)
        } else {
            running.all += 1;
            *running.clients.entry(client).or_default() += 1;
            counts.open.fetch_add(1, Ordering::Relaxed);
            return Ok(Tunnel { tunnels: self.clone(), client });
        };
        count.fetch_add(1, Ordering::Relaxed);
        Err(refused)
    }
}

/// The place of a request that goes on in another protocol, or may yet.
pub(crate) struct Tunnel {
    tunnels: Arc<Tunnels>,
    client: IpAddr,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.tunnels.observer.counts.tunnels.open.fetch_sub(1, Ordering::Relaxed);
        let mut running = self.tunnels.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.all -= 1;
        if let Some(count) = running.clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                running.clients.remove(&self.client);
            }
        }
    }
}

impl Tunnel {
    /// Watches both directions from here on; the place is kept as long as there is one of them.
    pub(crate) fn begin(self, handle: &Handle) -> Movement {
        let latest = Cell::new(handle.now());
        Movement(Rc::new(Watched { tunnel: self, handle: handle.clone(), latest, is_over: Cell::new(false) }))
    }
}

/// When anything has moved in a tunnel.
#[derive(Clone)]
pub(crate) struct Movement(Rc<Watched>);

struct Watched {
    tunnel: Tunnel,
    handle: Handle,
    latest: Cell<Instant>,
    /// Given up.
    is_over: Cell<bool>,
}

impl Movement {
    /// One direction.
    pub(crate) fn of<B>(&self, body: B) -> Moving<B> {
        Moving { body, movement: self.clone(), patience: None }
    }

    /// How long it may stay as it is.
    fn left(&self) -> Duration {
        let Watched { tunnel, handle, latest, .. } = &*self.0;
        (latest.get() + tunnel.tunnels.settings.idle_timeout.0).saturating_duration_since(handle.now())
    }

    fn give_up(&self) -> BodyError {
        if !self.0.is_over.replace(true) {
            self.0.tunnel.tunnels.observer.counts.tunnels.timed_out.fetch_add(1, Ordering::Relaxed);
        }
        "nothing has come from either side".into()
    }
}

/// A direction of a tunnel. It ends with an error when nothing has come in either for too long.
pub(crate) struct Moving<B> {
    body: B,
    movement: Movement,
    patience: Option<Pin<Box<Sleep>>>,
}

impl<B> http_body::Body for Moving<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.movement.0.latest.set(this.movement.0.handle.now());
            return Poll::Ready(frame);
        }
        loop {
            let patience = this.patience.get_or_insert_with(|| Box::pin(this.movement.0.handle.sleep(this.movement.left())));
            ready!(patience.as_mut().poll(cx));
            this.patience = None;
            if this.movement.left().is_zero() {
                return Poll::Ready(Some(Err(this.movement.give_up())));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_client_and_route_and_leave_nothing_behind() {
        let settings = Upgrades { per_client: 2, open: 3, ..Upgrades::default() };
        let observer = Arc::<Observer>::default();
        let tunnels = Arc::new(Tunnels::new(settings, observer.clone()));
        let [one, other] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        let refused = |client| tunnels.begin(client).err();
        let held: Vec<_> = [one, one, other].into_iter().map(|client| tunnels.begin(client).ok()).collect();
        assert!(held.iter().all(Option::is_some));
        assert_eq!(refused(other), Some(Refused::OfRoute));
        drop(held.into_iter().nth(2));
        assert!(tunnels.running.lock().expect("no panic").clients.is_empty());
        let held: Vec<_> = [one, one].into_iter().map(|client| tunnels.begin(client).ok()).collect();
        assert_eq!((refused(one), refused(other)), (Some(Refused::OfClient), None));
        drop(held);
        let counts = TunnelCounts::of(&observer.counts.tunnels);
        assert_eq!(counts, TunnelCounts { open: 0, of_one_client: 1, of_all: 1, timed_out: 0 });
    }
}
