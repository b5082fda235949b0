//! A lane: one connection, shared by its streams and replaced when it has ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use http_body_util::BodyExt;
use pronghorn_engine::{
    Connection, Connector, Error, Protocol, StatsProbe, Target, TransportStats,
};

use crate::generator::Generator;
use crate::plan::ConnectionUse;
use crate::socket::{OpenResult, OpenWebSocket};

/// First pause after two consecutive failures; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of doublings: up to 1.28 s.
const MAX_DOUBLINGS: u32 = 7;

/// One of the concurrent connections.
pub(crate) struct Lane {
    generator: Rc<Generator>,
    connector: Connector,
    /// Number of the current connection; [`Lane::take`] requests one newer than the caller's.
    number: Cell<u64>,
    /// Connection for the next caller. Over HTTP/1.1 a caller gets it exclusively.
    spare: RefCell<Option<Connection>>,
    connecting: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    /// Number of connections begun since the last response.
    attempts_without_response: Cell<u32>,
    /// WebSockets opened before the load, for the streams to use.
    sockets: RefCell<Vec<OpenWebSocket>>,
    /// Probe of the current connection's counters, and their values before measuring.
    counts: RefCell<Option<(StatsProbe, TransportStats)>>,
    /// With one request per connection: the previous connection, if its sessions are needed, and
    /// whether its request is measured.
    last: RefCell<Option<(Connection, bool)>>,
}

/// A handle on a lane's connection.
pub(crate) struct LaneConnection {
    pub(crate) number: u64,
    pub(crate) connection: Connection,
}

impl Lane {
    pub(crate) fn new(generator: Rc<Generator>, connector: Connector) -> Rc<Self> {
        Rc::new(Self {
            generator,
            connector,
            number: Cell::new(0),
            spare: RefCell::default(),
            connecting: Cell::new(false),
            waiting: RefCell::default(),
            attempts_without_response: Cell::new(0),
            sockets: RefCell::default(),
            counts: RefCell::default(),
            last: RefCell::default(),
        })
    }

    /// Returns a handle on a connection newer than number `seen`, and opens one if there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future lets the next caller open the connection.
    pub(crate) async fn take(&self, seen: u64) -> Result<LaneConnection, Error> {
        self.wait_for_connecting().await;
        if self.number.get() > seen
            && let Some(connection) = self.share_spare()
        {
            return Ok(LaneConnection { number: self.number.get(), connection });
        }
        let _connecting = Connecting::begin(self);
        self.pause().await;
        let connection = self.connect().await?;
        self.number.set(self.number.get() + 1);
        if self.generator.plan().connection_use == ConnectionUse::Kept {
            self.counts.replace(Some((connection.stats().clone(), TransportStats::default())));
            *self.spare.borrow_mut() = connection.share();
        }
        Ok(LaneConnection { number: self.number.get(), connection })
    }

    fn share_spare(&self) -> Option<Connection> {
        let mut spare = self.spare.borrow_mut();
        if !spare.as_ref().is_some_and(Connection::is_usable) {
            *spare = None;
        }
        let shared = spare.as_ref().and_then(Connection::share);
        // A connection that cannot be shared is handed over.
        shared.or_else(|| spare.take())
    }

    /// Opens the connection before the load, or obtains a session.
    pub(crate) async fn open(&self) -> Result<(), Error> {
        if self.generator.plan().websocket {
            return self.open_sockets().await;
        }
        let mut hold = self.take(0).await?;
        if self.generator.plan().connection_use == ConnectionUse::Kept {
            self.spare.borrow_mut().get_or_insert(hold.connection);
            return Ok(());
        }
        self.generator.tally.borrow_mut().warm_up += 1;
        let mut response = hold.connection.send(self.generator.request(false)).await?;
        while let Some(frame) = response.body_mut().frame().await {
            frame.map_err(|error| Error::from(&error))?;
        }
        self.on_response();
        self.retire(Some(hold), false).await;
        Ok(())
    }

    async fn open_sockets(&self) -> Result<(), Error> {
        for _ in 0..self.generator.plan().streams {
            match OpenWebSocket::open(&self.generator, self).await? {
                OpenResult::Open(socket) => self.sockets.borrow_mut().push(*socket),
                OpenResult::Refused(status) => {
                    return Err(Error::Exchange(format!(
                        "WebSocket refused: the server answered {status}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns a WebSocket that was opened before the load.
    pub(crate) fn take_socket(&self) -> Option<Box<OpenWebSocket>> {
        self.sockets.borrow_mut().pop().map(Box::new)
    }

    /// Retires a connection that has carried its one request. Sessions may arrive after the
    /// response, so a connection whose sessions are needed stays open while the next request runs.
    pub(crate) async fn retire(&self, hold: Option<LaneConnection>, measured: bool) {
        let done = hold.map(|hold| (hold.connection, measured));
        let done =
            if self.generator.plan().needs_sessions() { self.last.replace(done) } else { done };
        if let Some((connection, true)) = done {
            let stats = connection.stats().read().await;
            self.generator.on_transport(stats);
            if let Some(tls) = connection.tls() {
                self.generator.on_tls(&tls);
            }
        }
    }

    /// Records a response: if the connection ends now, the next one may be opened at once.
    pub(crate) fn on_response(&self) {
        self.attempts_without_response.set(0);
    }

    /// Closes the lane at the end of the run.
    pub(crate) async fn close(&self) {
        self.retire(None, false).await;
        self.retire_kept().await;
    }

    /// Retires the kept connection. Its counters are added once measuring has begun.
    async fn retire_kept(&self) {
        *self.spare.borrow_mut() = None;
        let counts = self.counts.borrow_mut().take();
        if let Some((probe, before)) = counts {
            let now = probe.read().await;
            self.generator.on_transport(now.since(before));
        }
    }

    /// Excludes everything counted so far, which belongs to the warm-up.
    pub(crate) async fn begin_measuring(&self) {
        let number = self.number.get();
        let probe = self.counts.borrow().as_ref().map(|(probe, _)| probe.clone());
        if let Some(probe) = probe {
            let before = probe.read().await;
            // It may have been replaced meanwhile by a connection without traffic of the warm-up.
            if number == self.number.get()
                && let Some(counts) = &mut *self.counts.borrow_mut()
            {
                counts.1 = before;
            }
        }
    }

    async fn wait_for_connecting(&self) {
        std::future::poll_fn(|cx| {
            if !self.connecting.get() {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits before reconnecting, so that a server that is down or closes each connection is not
    /// hit at full speed.
    async fn pause(&self) {
        let attempts_without_response = self.attempts_without_response.get();
        self.attempts_without_response.set(attempts_without_response.saturating_add(1));
        if let Some(doublings) = attempts_without_response.checked_sub(2) {
            self.generator
                .handle()
                .sleep(FIRST_PAUSE * 2_u32.pow(doublings.min(MAX_DOUBLINGS)))
                .await;
        }
    }

    async fn connect(&self) -> Result<Connection, Error> {
        self.retire_kept().await;
        let plan = self.generator.plan();
        let addresses = &plan.remotes;
        let first = self.generator.address.get();
        let mut failure = None;
        for index in (first..addresses.len()).chain(0..first) {
            let target = Target {
                remote: addresses[index],
                server_name: plan.server_name().to_owned(),
                protocol: plan.protocol,
                secure: plan.secure(),
                resumption: plan.resumption,
            };
            let began = self.generator.clock();
            match self.connector.connect(&target).await {
                Ok(connection) if connection.protocol() == Protocol::Http1 && plan.streams > 1 => {
                    failure = Some(Error::Unsupported(Protocol::Http2));
                }
                Ok(connection) => {
                    self.generator.address.set(index);
                    let took = self.generator.clock().saturating_duration_since(began);
                    self.generator.on_connected(connection.protocol(), took);
                    if plan.connection_use == ConnectionUse::Kept
                        && let Some(tls) = connection.tls()
                    {
                        self.generator.on_tls(&tls);
                    }
                    return Ok(connection);
                }
                Err(error) => failure = Some(error),
            }
        }
        self.generator.on_connect_failed();
        Err(failure.expect("invariant: a plan has an address"))
    }
}

/// Marks a lane as connecting until dropped.
struct Connecting<'a>(&'a Lane);

impl<'a> Connecting<'a> {
    fn begin(lane: &'a Lane) -> Self {
        lane.connecting.set(true);
        Self(lane)
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.connecting.set(false);
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}
