//! Tunnels of upgraded requests: allowed protocols, limits, and the idle timeout.

mod counters;

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use http_body::{Frame, SizeHint};
use pronghorn_engine::{BodyError, Handle, Peer, Protocol, Response, Sleep};

pub(crate) use self::counters::TunnelCounters;
pub use self::counters::TunnelCounts;
use crate::config::Upgrades;
use crate::proxy::Observer;
use crate::responses::text;

/// The tunnels of a route, over all workers.
pub(crate) struct Tunnels {
    settings: Upgrades,
    observer: Arc<Observer>,
    running: Mutex<Running>,
}

/// Number of open tunnels, in total and by client. It has at most one entry for each tunnel.
#[derive(Default)]
struct Running {
    all: u32,
    clients: HashMap<IpAddr, u32>,
}

/// Why an upgrade is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The route does not allow the protocol.
    NotSpoken,
    /// The client is at its limit.
    OfClient,
    /// The route is at its limit.
    OfRoute,
}

impl From<Refused> for Response {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NotSpoken => {
                text(StatusCode::NOT_IMPLEMENTED, "this protocol is not supported\n")
            }
            Refused::OfClient => {
                text(StatusCode::TOO_MANY_REQUESTS, "too many open upgrades from this client\n")
                    .with_header(RETRY_AFTER, 1.into())
            }
            Refused::OfRoute => text(StatusCode::SERVICE_UNAVAILABLE, "too many open upgrades\n")
                .with_header(RETRY_AFTER, 1.into()),
        }
    }
}

/// Converts a response that grants no tunnel: over HTTP/2 and 3 any success would look like a
/// granted one.
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

    /// Returns whether requests may switch to a protocol.
    pub(crate) fn allows(&self, protocol: &str) -> bool {
        self.settings.protocols.iter().any(|one| *one.0 == *protocol)
    }

    /// Takes a slot for a tunnel of `client`.
    pub(crate) fn begin(self: &Arc<Self>, client: IpAddr) -> Result<Tunnel, Refused> {
        let counts = &self.observer.counts.tunnels;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let (refused, count) = if running.all >= self.settings.open {
            (Refused::OfRoute, &counts.of_all)
        } else if running
            .clients
            .get(&client)
            .is_some_and(|count| *count >= self.settings.per_client)
        {
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

/// The slot of an open or requested tunnel, freed on drop.
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
    /// Starts the idle timeout for both directions; the slot is kept as long as either exists.
    pub(crate) fn begin(self, handle: &Handle) -> TunnelActivity {
        let latest = Cell::new(handle.now());
        TunnelActivity(Rc::new(ActivityState {
            tunnel: self,
            handle: handle.clone(),
            latest,
            is_over: Cell::new(false),
        }))
    }
}

/// The shared activity state of a tunnel's directions.
#[derive(Clone)]
pub(crate) struct TunnelActivity(Rc<ActivityState>);

struct ActivityState {
    tunnel: Tunnel,
    handle: Handle,
    latest: Cell<Instant>,
    /// Whether the tunnel has timed out.
    is_over: Cell<bool>,
}

impl TunnelActivity {
    /// Wraps the body of one direction.
    pub(crate) fn of<B>(&self, body: B) -> TunnelBody<B> {
        TunnelBody { body, activity: self.clone(), timer: None }
    }

    /// Returns the time left until the idle timeout.
    fn left(&self) -> Duration {
        let ActivityState { tunnel, handle, latest, .. } = &*self.0;
        (latest.get() + tunnel.tunnels.settings.idle_timeout.0)
            .saturating_duration_since(handle.now())
    }

    fn time_out(&self) -> BodyError {
        if !self.0.is_over.replace(true) {
            self.0.tunnel.tunnels.observer.counts.tunnels.timed_out.fetch_add(1, Ordering::Relaxed);
        }
        "idle timeout: no data from either side".into()
    }
}

/// A direction of a tunnel. It fails if neither direction has received data within the idle
/// timeout.
pub(crate) struct TunnelBody<B> {
    body: B,
    activity: TunnelActivity,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> http_body::Body for TunnelBody<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.activity.0.latest.set(this.activity.0.handle.now());
            return Poll::Ready(frame);
        }
        loop {
            let timer = this.timer.get_or_insert_with(|| {
                Box::pin(this.activity.0.handle.sleep(this.activity.left()))
            });
            ready!(timer.as_mut().poll(cx));
            this.timer = None;
            if this.activity.left().is_zero() {
                return Poll::Ready(Some(Err(this.activity.time_out())));
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
        let held: Vec<_> =
            [one, one, other].into_iter().map(|client| tunnels.begin(client).ok()).collect();
        assert!(held.iter().all(Option::is_some));
        assert_eq!(refused(other), Some(Refused::OfRoute));
        drop(held.into_iter().nth(2));
        assert!(tunnels.running.lock().expect("no panic").clients.is_empty());
        let held: Vec<_> =
            [one, one].into_iter().map(|client| tunnels.begin(client).ok()).collect();
        assert_eq!((refused(one), refused(other)), (Some(Refused::OfClient), None));
        drop(held);
        let counts = TunnelCounts::of(&observer.counts.tunnels);
        assert_eq!(counts, TunnelCounts { open: 0, of_one_client: 1, of_all: 1, timed_out: 0 });
    }
}
