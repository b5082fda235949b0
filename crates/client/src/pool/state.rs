//! The connections of a pool, and the exchanges on them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker, ready};
use std::time::{Duration, Instant};

use http::{HeaderMap, Request, Response, StatusCode, Version};
use pronghorn_engine::{
    Body, ClientRequest, Connection, Connector, Error as Failure, Handle, Protocol,
};

use crate::alt_svc::AltSvc;
use crate::connections::Connections;
use crate::exchanges::LONG;
use crate::lease::{Content, Lease};
use crate::origin::{Origin, Target};
use crate::queue::{Ticket, WaitingCount};
use crate::{Error, Http3, Options, Phase, connect};

/// What the parts of a pool share.
pub(crate) struct PoolState {
    pub(crate) connector: Connector,
    pub(crate) handle: Handle,
    pub(crate) options: Options,
    pub(super) origins: RefCell<HashMap<Origin, Rc<Connections>>>,
    /// Wakes the task that closes idle connections.
    pub(super) sweeper: Cell<Option<Waker>>,
    /// Origin of the latest request. The next request usually has the same origin.
    pub(super) latest: RefCell<Option<(Target, Rc<Connections>)>>,
}

/// The callbacks of a [`ClientRequest`], for all of its attempts.
pub(crate) struct Callbacks<'a> {
    pub(crate) on_interim: Option<&'a mut dyn FnMut(StatusCode, HeaderMap)>,
    pub(crate) on_queue: Option<&'a mut dyn FnMut(bool)>,
}

impl PoolState {
    /// Closes an idle connection as soon as its server closes it.
    pub(crate) fn watch(&self, connection: &Connection) {
        let sweeper = self.sweeper.take();
        if let Some(sweeper) = &sweeper {
            connection.watch(sweeper);
        }
        self.sweeper.set(sweeper);
    }

    /// Returns the connections of a request's origin.
    pub(super) fn connections_for(
        &self,
        request: &Request<Body>,
    ) -> Result<Rc<Connections>, Error> {
        if let Some((target, connections)) = &*self.latest.borrow()
            && target.is_of(request)
        {
            return Ok(connections.clone());
        }
        let origin = Origin::of_request(request)?;
        if self.options.http3 == Http3::Only && !origin.secure {
            let reason = "there is no HTTP/3 in clear text; ask for https, or let the client speak \
                more than HTTP/3";
            return Err(Error::Uri { uri: request.uri().to_string(), reason });
        }
        let connections = self.connections(origin);
        *self.latest.borrow_mut() = Target::of(request).map(|target| (target, connections.clone()));
        Ok(connections)
    }

    fn connections(&self, origin: Origin) -> Rc<Connections> {
        let mut origins = self.origins.borrow_mut();
        if let Some(connections) = origins.get(&origin) {
            return connections.clone();
        }
        if origins.len() >= self.options.origins {
            // Evict the least recently used origin. Leases keep origins in use alive.
            let oldest = origins
                .values()
                .filter(|one| one.is_unused())
                .min_by_key(|one| one.last_used.get());
            if let Some(oldest) = oldest.map(|oldest| oldest.origin.clone()) {
                origins.remove(&oldest);
            }
        }
        let connections = Rc::new(Connections::new(origin.clone(), self.handle.now()));
        origins.insert(origin, connections.clone());
        connections
    }

    /// Acquires a connection for one request.
    pub(super) async fn acquire(
        self: &Rc<Self>,
        connections: &Rc<Connections>,
    ) -> Result<Lease, Error> {
        if let Some(lease) = connections.take(self) {
            return Ok(lease);
        }
        let _waiting = WaitingCount::new(
            &connections.waiting,
            self.options.waiting_per_origin,
            &connections.origin,
        )?;
        let ticket = Ticket::new(&connections.queue);
        connections.serve(self);
        let served = self
            .in_time(
                self.options.connect_timeout,
                Phase::Connect,
                self.served(connections, &ticket),
            )
            .await;
        served.unwrap_or_else(|_| {
            let is_connecting = connections.connecting.get() > 0;
            Err(Error::TimedOut(if is_connecting { Phase::Connect } else { Phase::Queue }))
        })
    }

    /// Waits for a connection. Checks regularly whether running exchanges have become long, since
    /// those no longer count against the limit.
    async fn served(
        self: &Rc<Self>,
        connections: &Rc<Connections>,
        ticket: &Ticket<'_, Lease>,
    ) -> Result<Lease, Error> {
        let mut served = pin!(ticket.served());
        loop {
            let mut sleep = pin!(self.handle.sleep(LONG));
            let result = poll_fn(|cx| match served.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
            })
            .await;
            match result {
                Some(result) => return result,
                None => connections.serve(self),
            }
        }
    }

    /// Starts to open a connection for waiting requests. The attempt continues if they give up:
    /// later requests can use the connection.
    pub(crate) fn open(self: &Rc<Self>, connections: &Rc<Connections>) {
        let (shared, connections) = (self.clone(), connections.clone());
        let before = connections.queue.next_number();
        self.handle.spawn(async move {
            let attempt = connect::establish(&shared, &connections);
            let connected =
                shared.in_time(shared.options.connect_timeout, Phase::Connect, attempt).await;
            connections.connecting.set(connections.connecting.get() - 1);
            match connected {
                Ok(Ok(connection)) => connections.put(connection, &shared),
                Ok(Err(error)) | Err(error) => connections.fail(&error, before, &shared),
            }
        });
    }

    /// Sends a request. Until `deadline` it may wait for a stream within the server's concurrency
    /// limit. Afterwards `head_timeout` applies, which excludes the time in which the server waits
    /// for the body.
    pub(super) async fn exchange(
        &self,
        lease: &mut Lease,
        request: Box<Request<Body>>,
        deadline: Instant,
        callbacks: &mut Callbacks<'_>,
    ) -> Result<Result<Response<pronghorn_engine::Incoming>, Failure>, Error> {
        let (connections, generation) = (lease.connections().clone(), lease.generation());
        let upload = lease.upload();
        let queued = Cell::new(false);
        let Callbacks { on_interim, on_queue } = callbacks;
        let mut note_queue = |is_queued| {
            queued.set(is_queued);
            if let Some(on_queue) = on_queue {
                on_queue(is_queued);
            }
        };
        let mut request = ClientRequest::new(request).on_queue(&mut note_queue);
        request.on_interim = on_interim.as_mut().map(|on_interim| &mut **on_interim as _);
        let mut sent = pin!(lease.connection().send(request));
        let (mut waiting, mut sleep, mut began) = (None, None, self.handle.now());
        poll_fn(|cx| {
            if let Poll::Ready(result) = sent.as_mut().poll(cx) {
                return Poll::Ready(Ok(result));
            }
            if queued.get() != waiting.is_some() {
                (sleep, began) = (None, self.handle.now());
                waiting = if queued.get() {
                    Some(WaitingCount::new(
                        &connections.waiting,
                        self.options.waiting_per_origin,
                        &connections.origin,
                    )?)
                } else {
                    None
                };
            }
            loop {
                let now = self.handle.now();
                // Time in which the server waits for the request body does not count against it.
                let head_deadline =
                    || upload.waits_since(began).unwrap_or(now) + self.options.head_timeout;
                let until = if waiting.is_some() { deadline } else { head_deadline() };
                if until <= now {
                    if waiting.is_some() {
                        return Poll::Ready(Err(Error::TimedOut(Phase::Queue)));
                    }
                    connections.retire_silent(generation, began);
                    return Poll::Ready(Err(Error::TimedOut(Phase::Head)));
                }
                let patience = sleep.get_or_insert_with(|| self.handle.sleep(until - now));
                ready!(Pin::new(patience).poll(cx));
                sleep = None;
            }
        })
        .await
    }

    pub(super) fn received(
        self: &Rc<Self>,
        mut response: Response<pronghorn_engine::Incoming>,
        mut lease: Lease,
        asked_upgrade: bool,
    ) -> Response<Content> {
        let protocol = lease.connection().protocol();
        lease.connections().note_answer(lease.generation(), self.handle.now());
        *response.version_mut() = match protocol {
            Protocol::Http1 => Version::HTTP_11,
            Protocol::Http2 => Version::HTTP_2,
            Protocol::Http3 => Version::HTTP_3,
        };
        //= RFC 9114 section 3.1.1
        //# On receipt of an Alt-Svc record indicating HTTP/3 support, a client MAY attempt to establish a QUIC connection to the
        //# indicated host and port; if this connection is successful, the client can send HTTP requests using the mapping described in
        //# this document.
        if lease.connections().origin.secure {
            let connections = lease.connections();
            connections.learn(AltSvc::of(response.headers()), self.handle.now());
            if protocol != Protocol::Http3 {
                connect::try_http3(self, connections);
            }
        }
        let is_granted = |status: StatusCode| match protocol {
            Protocol::Http1 => status == StatusCode::SWITCHING_PROTOCOLS,
            Protocol::Http2 | Protocol::Http3 => status.is_success(),
        };
        let is_tunnel = asked_upgrade && is_granted(response.status());
        if is_tunnel {
            lease.upgraded();
        }
        let timeout = (!is_tunnel).then_some(self.options.body_timeout);
        response.map(|body| Content::new(body, lease, timeout))
    }

    /// Runs `future` with a timeout.
    pub(crate) async fn in_time<T>(
        &self,
        timeout: Duration,
        phase: Phase,
        future: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let mut sleep = pin!(self.handle.sleep(timeout));
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| Err(Error::TimedOut(phase))),
        })
        .await
    }
}

/// Closes connections after `idle_timeout`, or as soon as the server closes them, while the pool
/// exists.
pub(super) async fn sweep(pool: Weak<PoolState>, handle: Handle) {
    loop {
        let Some(idle_timeout) = pool.upgrade().map(|pool| pool.options.idle_timeout) else {
            return;
        };
        let mut sleep = pin!(handle.sleep((idle_timeout / 2).max(Duration::from_millis(100))));
        let mut is_waiting = false;
        poll_fn(|cx| {
            let slept = sleep.as_mut().poll(cx);
            // A closed connection also wakes this task.
            if slept.is_ready() || std::mem::replace(&mut is_waiting, true) {
                return Poll::Ready(());
            }
            if let Some(pool) = pool.upgrade() {
                pool.sweeper.set(Some(cx.waker().clone()));
            }
            Poll::Pending
        })
        .await;
        let Some(pool) = pool.upgrade() else { return };
        let all: Vec<_> = pool.origins.borrow().values().cloned().collect();
        for connections in all {
            connections.sweep(handle.now(), idle_timeout);
        }
    }
}

/// Looks up names with open connections regularly, while the pool exists.
pub(super) async fn refresh_addresses(pool: Weak<PoolState>, handle: Handle, every: Duration) {
    loop {
        handle.sleep(every.max(Duration::from_millis(100))).await;
        let Some(pool) = pool.upgrade() else { return };
        for connections in
            pool.origins.borrow().values().filter(|connections| connections.needs_lookup())
        {
            handle.spawn(connect::look_up_again(pool.clone(), connections.clone()));
        }
    }
}
