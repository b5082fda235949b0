//! Connections and state of one origin.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pronghorn_engine::{Connection, Protocol};

use crate::addresses::Addresses;
use crate::alt_svc::{AltSvc, Alternative};
use crate::exchanges::Exchanges;
use crate::lease::Lease;
use crate::origin::Origin;
use crate::pool::state::PoolState;
use crate::queue::Queue;
use crate::{Error, Options};

/// Connections and state of one origin.
pub(crate) struct Connections {
    pub(crate) origin: Origin,
    /// Shared connection for any number of requests: HTTP/3, or else HTTP/2.
    shared: RefCell<Option<Multiplexed>>,
    /// Number of the current shared connection.
    generation: Cell<u64>,
    /// Number of requests on shared connections.
    pub(crate) shared_uses: Cell<usize>,
    /// Idle HTTP/1.1 connections, most recently used last.
    idle: RefCell<Vec<Idle>>,
    /// Number of open HTTP/1.1 connections, including those in use, excluding upgraded ones.
    open_http1: Cell<usize>,
    /// Exchanges on the HTTP/1.1 connections in use.
    pub(crate) exchanges: RefCell<Exchanges>,
    pub(crate) connecting: Cell<usize>,
    /// Number of waiting requests, including those queued on a connection.
    pub(crate) waiting: Cell<usize>,
    /// Requests without a connection.
    pub(crate) queue: Queue<Lease>,
    /// Protocol of the latest TCP connection.
    over_tcp: Cell<Option<Protocol>>,
    /// The origin's HTTP/3 endpoint, and when the advertisement expires.
    alternative: RefCell<Option<(Alternative, Instant)>>,
    /// Whether HTTP/3 is being tried while requests use TCP.
    trying_http3: Cell<bool>,
    /// HTTP/3 is not tried before this time.
    http3_paused: Cell<Option<Instant>>,
    pub(crate) addresses: Addresses,
    pub(crate) last_used: Cell<Instant>,
}

/// A connection for any number of requests.
struct Multiplexed {
    connection: Connection,
    /// When the connection last received a response.
    answered: Cell<Option<Instant>>,
}

/// An idle HTTP/1.1 connection. Boxed, because it moves with each request.
struct Idle {
    connection: Box<Connection>,
    since: Instant,
    /// Whether a request was sent on it.
    used: bool,
}

impl Connections {
    pub(crate) fn new(origin: Origin, now: Instant) -> Self {
        Self {
            origin,
            shared: RefCell::default(),
            generation: Cell::default(),
            shared_uses: Cell::default(),
            idle: RefCell::default(),
            open_http1: Cell::default(),
            exchanges: RefCell::default(),
            connecting: Cell::default(),
            waiting: Cell::default(),
            queue: Queue::default(),
            over_tcp: Cell::default(),
            alternative: RefCell::default(),
            trying_http3: Cell::default(),
            http3_paused: Cell::default(),
            addresses: Addresses::new(),
            last_used: Cell::new(now),
        }
    }

    /// Takes an available connection.
    pub(crate) fn take(self: &Rc<Self>, pool: &Rc<PoolState>) -> Option<Lease> {
        let now = pool.handle.now();
        self.last_used.set(now);
        let mut shared = self.shared.borrow_mut();
        if let Some(Multiplexed { connection, answered }) =
            shared.as_ref().filter(|shared| shared.connection.is_usable())
        {
            let is_proven = answered.get().is_some();
            return Some(Lease::shared(
                Box::new(connection.share()?),
                self.generation.get(),
                is_proven,
                self,
                pool,
            ));
        }
        *shared = None;
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { connection, since, used }) = idle.pop() {
            if connection.is_usable()
                && now.saturating_duration_since(since) < pool.options.idle_timeout
            {
                return Some(Lease::exclusive(connection, used, self, pool));
            }
            self.open_http1.set(self.open_http1.get() - 1);
        }
        None
    }

    fn may_connect(&self, pool: &PoolState) -> bool {
        let (connecting, waiting) = (self.connecting.get(), self.queue.len());
        if self.over_tcp.get() == Some(Protocol::Http1) {
            connecting < waiting && self.has_room_for(connecting + self.open_http1.get() + 1, pool)
        } else {
            // One connection is probably enough for all of them.
            connecting == 0 && waiting > 0
        }
    }

    /// Returns whether `open` HTTP/1.1 connections are permitted.
    fn has_room_for(&self, open: usize, pool: &PoolState) -> bool {
        let most = pool.options.connections_per_origin.max(1);
        open <= most
            || open - most
                <= self
                    .exchanges
                    .borrow()
                    .long(pool.handle.now())
                    .min(pool.options.long_responses_per_origin)
    }

    /// Stops counting an HTTP/1.1 connection that was upgraded to another protocol.
    pub(crate) fn remove_upgraded(self: &Rc<Self>, pool: &Rc<PoolState>) {
        self.open_http1.set(self.open_http1.get() - 1);
        self.serve(pool);
    }

    /// Assigns available connections to waiting requests, and opens as many connections for the
    /// rest as permitted.
    pub(crate) fn serve(self: &Rc<Self>, pool: &Rc<PoolState>) {
        while self.queue.len() > 0 {
            let Some(lease) = self.take(pool) else { break };
            self.queue.serve(lease);
        }
        while self.may_connect(pool) {
            self.connecting.set(self.connecting.get() + 1);
            pool.open(self);
        }
    }

    /// Adds a new connection.
    pub(crate) fn put(self: &Rc<Self>, connection: Connection, pool: &Rc<PoolState>) {
        let protocol = connection.protocol();
        if protocol != Protocol::Http3 {
            self.over_tcp.set(Some(protocol));
        }
        if protocol == Protocol::Http1 {
            self.open_http1.set(self.open_http1.get() + 1);
            pool.watch(&connection);
            self.idle.borrow_mut().push(Idle {
                connection: Box::new(connection),
                since: pool.handle.now(),
                used: false,
            });
        } else {
            *self.shared.borrow_mut() = Some(Multiplexed { connection, answered: Cell::default() });
            self.generation.set(self.generation.get() + 1);
        }
        self.serve(pool);
    }

    /// Returns an HTTP/1.1 connection after its exchange, or records that it was closed.
    pub(crate) fn give_back(
        self: &Rc<Self>,
        connection: Option<Box<Connection>>,
        used: bool,
        pool: &Rc<PoolState>,
    ) {
        let now = pool.handle.now();
        let has_room = self.has_room_for(self.open_http1.get(), pool);
        match connection.filter(|connection| {
            has_room && connection.is_usable() && self.addresses.has(connection.remote())
        }) {
            Some(connection) => {
                pool.watch(&connection);
                self.idle.borrow_mut().push(Idle { connection, since: now, used });
            }
            None => self.open_http1.set(self.open_http1.get() - 1),
        }
        self.last_used.set(now);
        self.serve(pool);
    }

    /// Handles a failed connection attempt. It fails the requests that were waiting when the
    /// attempt began (numbers below `before`). If other attempts are running or connections may
    /// become free, it fails only the first of them.
    pub(crate) fn fail(self: &Rc<Self>, error: &Error, before: u64, pool: &Rc<PoolState>) {
        let others = self.connecting.get() > 0 || self.open_http1.get() > 0;
        self.queue.fail(error, before, others);
        self.serve(pool);
    }

    /// Returns whether host and port are the origin's own, not those of an alternative.
    pub(crate) fn is_at(&self, host: &str, port: u16) -> bool {
        self.origin.host == host && self.origin.port == port
    }

    /// Returns whether there are connections to a host name, and no lookup is running.
    pub(crate) fn needs_lookup(&self) -> bool {
        let is_open = self.open_http1.get() > 0 || self.shared.borrow().is_some();
        is_open
            && self.origin.socket.is_none()
            && self.origin.host.parse::<IpAddr>().is_err()
            && !self.addresses.is_being_looked_up.get()
    }

    /// Records the result of a lookup, and retires connections to forgotten addresses. Connections
    /// in use end with their last request.
    pub(crate) fn learn_addresses(&self, found: &[SocketAddr], options: &Options, now: Instant) {
        let Some(lifetime) = options.resolve_every.filter(|_| !found.is_empty()) else { return };
        self.addresses.learn(found.to_vec(), now, lifetime);
        let before = self.idle.borrow().len();
        self.idle.borrow_mut().retain(|idle| self.addresses.has(idle.connection.remote()));
        self.open_http1.set(self.open_http1.get() - (before - self.idle.borrow().len()));
        // An alternative on another host has its own addresses.
        let host = self
            .alternative
            .borrow()
            .as_ref()
            .and_then(|(alternative, _)| alternative.host.clone());
        let is_elsewhere = options.http3 == crate::Http3::AltSvc
            && host.is_some_and(|host| host != self.origin.host);
        self.shared.borrow_mut().take_if(|shared| {
            let is_alternative = is_elsewhere && shared.connection.protocol() == Protocol::Http3;
            !is_alternative && !self.addresses.has(shared.connection.remote())
        });
    }

    pub(crate) fn learn(&self, said: AltSvc, now: Instant) {
        match said {
            AltSvc::Absent => {}
            AltSvc::Clear => *self.alternative.borrow_mut() = None,
            AltSvc::Http3(alternative) => {
                let until = now + alternative.max_age;
                *self.alternative.borrow_mut() = Some((alternative, until));
            }
        }
    }

    /// Returns where to try HTTP/3, if at all.
    pub(crate) fn http3(&self, options: &Options, now: Instant) -> Option<(String, u16)> {
        use crate::Http3::{AltSvc, First, Off, Only};
        let here = || Some((self.origin.host.clone(), self.origin.port));
        if !self.origin.secure
            || self.trying_http3.get()
            || (options.http3 != Only && self.http3_paused.get().is_some_and(|until| now < until))
        {
            return None;
        }
        match options.http3 {
            Off => None,
            First | Only => here(),
            AltSvc => {
                let alternative = self.alternative.borrow();
                let (alternative, _) = alternative.as_ref().filter(|(_, until)| now < *until)?;
                Some((
                    alternative.host.clone().unwrap_or_else(|| self.origin.host.clone()),
                    alternative.port,
                ))
            }
        }
    }

    /// Records that this shared connection received a response.
    pub(crate) fn note_answer(&self, generation: Option<u64>, now: Instant) {
        if generation == Some(self.generation.get())
            && let Some(shared) = &*self.shared.borrow()
        {
            shared.answered.set(Some(now));
        }
    }

    /// Retires this shared connection if it has received nothing since `began`: its server may be
    /// gone.
    pub(crate) fn retire_silent(&self, generation: Option<u64>, began: Instant) {
        let answered = self.shared.borrow().as_ref().and_then(|shared| shared.answered.get());
        if answered.is_none_or(|answered| answered < began) {
            self.retire(generation);
        }
    }

    /// Returns whether requests already use HTTP/3.
    pub(crate) fn has_http3(&self) -> bool {
        let is_http3 = |connection: &Connection| {
            connection.protocol() == Protocol::Http3 && connection.is_usable()
        };
        self.shared.borrow().as_ref().is_some_and(|shared| is_http3(&shared.connection))
    }

    /// Stops using this shared connection for new requests.
    pub(crate) fn retire(&self, generation: Option<u64>) {
        if generation == Some(self.generation.get()) {
            *self.shared.borrow_mut() = None;
        }
    }

    /// Closes idle HTTP/1.1 connections. When one turns out to be closed, others may be closed too
    /// without the client having noticed.
    pub(crate) fn retire_idle(&self) {
        let idle = self.idle.take();
        self.open_http1.set(self.open_http1.get() - idle.len());
    }

    pub(crate) fn set_trying_http3(&self, trying: bool) {
        self.trying_http3.set(trying);
    }

    pub(crate) fn pause_http3(&self, until: Option<Instant>) {
        self.http3_paused.set(until);
    }

    /// Returns whether no request uses or waits for a connection.
    pub(crate) fn is_unused(&self) -> bool {
        let idle = self.idle.borrow().len();
        self.shared_uses.get() == 0
            && self.waiting.get() == 0
            && self.connecting.get() == 0
            && self.open_http1.get() == idle
    }

    /// Closes connections that have been idle for `idle_timeout`.
    pub(crate) fn sweep(&self, now: Instant, idle_timeout: Duration) {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= idle_timeout;
        self.idle.borrow_mut().retain(|Idle { connection, since, .. }| {
            let keeps = connection.is_usable() && !is_old(*since);
            if !keeps {
                self.open_http1.set(self.open_http1.get() - 1);
            }
            keeps
        });
        let mut shared = self.shared.borrow_mut();
        let is_usable = shared.as_ref().is_some_and(|shared| shared.connection.is_usable());
        if !is_usable || (self.shared_uses.get() == 0 && is_old(self.last_used.get())) {
            *shared = None;
        }
    }

    pub(crate) fn touch(&self, now: Instant) {
        self.last_used.set(now);
    }
}
