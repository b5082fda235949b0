//! One connection's place: opened, shared by its streams, replaced when it has ended.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use http_body_util::BodyExt;
use pronghorn_engine::{Connection, Connector, Error, Protocol, StatsProbe, Target, TransportStats};

use crate::generator::Generator;
use crate::plan::ConnectionUse;
use crate::socket::{Answer, Socket};

/// The first wait after two failures in a row; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Doublings at the most: 1.28 s.
const MAX_DOUBLINGS: u32 = 7;

/// One of the connections that are open at once.
pub(crate) struct Lane {
    generator: Rc<Generator>,
    connector: Connector,
    /// The present connection's number; [`Lane::take`] asks for one that is newer than the caller's.
    number: Cell<u64>,
    /// For whom asks next. Over HTTP/1.1 the one who takes it has it alone.
    spare: RefCell<Option<Connection>>,
    connecting: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
    /// Connections begun since the last response.
    fruitless: Cell<u32>,
    /// Opened before the load, for the streams to take.
    sockets: RefCell<Vec<Socket>>,
    /// What was counted before the measuring, and how to read what is now.
    counts: RefCell<Option<(StatsProbe, TransportStats)>>,
    /// With a connection for each request: the one before, where its sessions are of use, and whether its request is measured.
    last: RefCell<Option<(Connection, bool)>>,
}

/// A handle on a lane's connection.
pub(crate) struct Hold {
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
            fruitless: Cell::new(0),
            sockets: RefCell::default(),
            counts: RefCell::default(),
            last: RefCell::default(),
        })
    }

    /// A handle on a connection newer than number `seen`, which is opened if there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future lets the next caller open the connection.
    pub(crate) async fn take(&self, seen: u64) -> Result<Hold, Error> {
        self.wait_for_connecting().await;
        if self.number.get() > seen
            && let Some(connection) = self.share_spare()
        {
            return Ok(Hold { number: self.number.get(), connection });
        }
        let _connecting = Connecting::begin(self);
        self.pause().await;
        let connection = self.connect().await?;
        self.number.set(self.number.get() + 1);
        if self.generator.plan().connection_use == ConnectionUse::Kept {
            self.counts.replace(Some((connection.stats().clone(), TransportStats::default())));
            *self.spare.borrow_mut() = connection.share();
        }
        Ok(Hold { number: self.number.get(), connection })
    }

    fn share_spare(&self) -> Option<Connection> {
        let mut spare = self.spare.borrow_mut();
        if !spare.as_ref().is_some_and(Connection::is_usable) {
            *spare = None;
        }
        let shared = spare.as_ref().and_then(Connection::share);
        // A connection that cannot be shared is given away.
        shared.or_else(|| spare.take())
    }

    /// Opens the connection before anybody asks, or gets a session.
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
            match Socket::open(&self.generator, self).await? {
                Answer::Open(socket) => self.sockets.borrow_mut().push(*socket),
                Answer::Refused(status) => {
                    return Err(Error::Exchange(format!("the server grants no WebSocket: it answered {status}")));
                }
            }
        }
        Ok(())
    }

    /// A WebSocket that was opened before the load.
    pub(crate) fn take_socket(&self) -> Option<Box<Socket>> {
        self.sockets.borrow_mut().pop().map(Box::new)
    }

    /// The connection has carried its one request. Sessions may come later than the answer, so that one they are wanted of stays open
    /// for as long as the next request takes.
    pub(crate) async fn retire(&self, hold: Option<Hold>, measured: bool) {
        let done = hold.map(|hold| (hold.connection, measured));
        let done = if self.generator.plan().needs_sessions() { self.last.replace(done) } else { done };
        if let Some((connection, true)) = done {
            let stats = connection.stats().read().await;
            self.generator.on_transport(stats);
            if let Some(tls) = connection.tls() {
                self.generator.on_tls(&tls);
            }
        }
    }

    /// The connection has carried a response: if it ends now, the next may follow at once.
    pub(crate) fn on_response(&self) {
        self.fruitless.set(0);
    }

    /// The end of the run.
    pub(crate) async fn close(&self) {
        self.retire(None, false).await;
        self.retire_kept().await;
    }

    /// The connection is not to be used any more. Its counts are taken when the measuring has begun.
    async fn retire_kept(&self) {
        *self.spare.borrow_mut() = None;
        let counts = self.counts.borrow_mut().take();
        if let Some((probe, before)) = counts {
            let now = probe.read().await;
            self.generator.on_transport(now.since(before));
        }
    }

    /// What was counted so far is of the warm-up.
    pub(crate) async fn begin_measuring(&self) {
        let number = self.number.get();
        let probe = self.counts.borrow().as_ref().map(|(probe, _)| probe.clone());
        if let Some(probe) = probe {
            let before = probe.read().await;
            // Meanwhile it may have been replaced by one that has nothing of the warm-up.
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

    /// A server that is gone, or that ends each connection, must not be asked as fast as it can say no.
    async fn pause(&self) {
        let fruitless = self.fruitless.get();
        self.fruitless.set(fruitless.saturating_add(1));
        if let Some(doublings) = fruitless.checked_sub(2) {
            self.generator.handle().sleep(FIRST_PAUSE * 2_u32.pow(doublings.min(MAX_DOUBLINGS))).await;
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

/// Marks a lane as being connected, until dropped.
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
