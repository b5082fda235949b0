//! The connections of one origin, and what is known of it.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use pronghorn_engine::{Connection, Protocol};

use crate::addresses::Addresses;
use crate::alt_svc::{AltSvc, Alternative};
use crate::lease::Lease;
use crate::origin::Origin;
use crate::pool::Shared;
use crate::underway::Underway;
use crate::waiting::Queue;
use crate::{Error, Options};

/// What there is of one origin.
pub(crate) struct Connections {
    pub(crate) origin: Origin,
    /// Carries any number of requests: HTTP/3, or else HTTP/2.
    shared: RefCell<Option<Multiplexed>>,
    /// The number of the shared connection.
    generation: Cell<u64>,
    /// Uses of shared connections.
    pub(crate) shared_uses: Cell<usize>,
    /// HTTP/1.1 connections that nobody uses, the latest last.
    idle: RefCell<Vec<Idle>>,
    /// HTTP/1.1 connections, those in use included, but for those that went on in another protocol.
    open_http1: Cell<usize>,
    /// What is on those in use.
    pub(crate) underway: RefCell<Underway>,
    pub(crate) connecting: Cell<usize>,
    /// Requests that wait, those on a connection included.
    pub(crate) waiting: Cell<usize>,
    /// Those that have no connection.
    pub(crate) queue: Queue,
    /// What the last connection over TCP spoke.
    over_tcp: Cell<Option<Protocol>>,
    /// Where the origin's HTTP/3 is, and until when that holds.
    alternative: RefCell<Option<(Alternative, Instant)>>,
    /// HTTP/3 is being tried while others go over TCP.
    trying_http3: Cell<bool>,
    /// HTTP/3 is not tried before.
    http3_paused: Cell<Option<Instant>>,
    pub(crate) addresses: Addresses,
    pub(crate) last_used: Cell<Instant>,
}

/// A connection for any number of requests.
struct Multiplexed {
    connection: Connection,
    /// When it brought a response last.
    answered: Cell<Option<Instant>>,
}

/// An HTTP/1.1 connection that nobody uses. It has a place of its own, since it goes from hand to hand with each request.
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
            underway: RefCell::default(),
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

    /// A connection that is there.
    pub(crate) fn take(self: &Rc<Self>, pool: &Rc<Shared>) -> Option<Lease> {
        let now = pool.handle.now();
        self.last_used.set(now);
        let mut shared = self.shared.borrow_mut();
        if let Some(Multiplexed { connection, answered }) = shared.as_ref().filter(|shared| shared.connection.is_usable()) {
            let is_proven = answered.get().is_some();
            return Some(Lease::shared(Box::new(connection.share()?), self.generation.get(), is_proven, self, pool));
        }
        *shared = None;
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { connection, since, used }) = idle.pop() {
            if connection.is_usable() && now.saturating_duration_since(since) < pool.options.idle_timeout {
                return Some(Lease::exclusive(connection, used, self, pool));
            }
            self.open_http1.set(self.open_http1.get() - 1);
        }
        None
    }

    fn may_connect(&self, pool: &Shared) -> bool {
        let (connecting, waiting) = (self.connecting.get(), self.queue.len());
        if self.over_tcp.get() == Some(Protocol::Http1) {
            connecting < waiting && self.has_room_for(connecting + self.open_http1.get() + 1, pool)
        } else {
            // One is enough for all of them, most likely.
            connecting == 0 && waiting > 0
        }
    }

    /// Whether so many HTTP/1.1 connections may be open.
    fn has_room_for(&self, open: usize, pool: &Shared) -> bool {
        let most = pool.options.connections_per_origin.max(1);
        open <= most || open - most <= self.underway.borrow().long(pool.handle.now()).min(pool.options.long_responses_per_origin)
    }

    /// An HTTP/1.1 connection goes on in another protocol, and is none of those any more.
    pub(crate) fn part_with_one(self: &Rc<Self>, pool: &Rc<Shared>) {
        self.open_http1.set(self.open_http1.get() - 1);
        self.serve(pool);
    }

    /// Gives what is there to those who wait, and opens as many connections for the others as may be.
    pub(crate) fn serve(self: &Rc<Self>, pool: &Rc<Shared>) {
        while self.queue.len() > 0 {
            let Some(lease) = self.take(pool) else { break };
            self.queue.serve(lease);
        }
        while self.may_connect(pool) {
            self.connecting.set(self.connecting.get() + 1);
            pool.open(self);
        }
    }

    /// Takes a new connection in.
    pub(crate) fn put(self: &Rc<Self>, connection: Connection, pool: &Rc<Shared>) {
        let protocol = connection.protocol();
        if protocol != Protocol::Http3 {
            self.over_tcp.set(Some(protocol));
        }
        if protocol == Protocol::Http1 {
            self.open_http1.set(self.open_http1.get() + 1);
            pool.watch(&connection);
            self.idle.borrow_mut().push(Idle { connection: Box::new(connection), since: pool.handle.now(), used: false });
        } else {
            *self.shared.borrow_mut() = Some(Multiplexed { connection, answered: Cell::default() });
            self.generation.set(self.generation.get() + 1);
        }
        self.serve(pool);
    }

    /// Takes back an HTTP/1.1 connection whose exchange is over, or counts that it has ended.
    pub(crate) fn give_back(self: &Rc<Self>, connection: Option<Box<Connection>>, used: bool, pool: &Rc<Shared>) {
        let now = pool.handle.now();
        let has_room = self.has_room_for(self.open_http1.get(), pool);
        match connection.filter(|connection| has_room && connection.is_usable() && self.addresses.has(connection.remote())) {
            Some(connection) => {
                pool.watch(&connection);
                self.idle.borrow_mut().push(Idle { connection, since: now, used });
            }
            None => self.open_http1.set(self.open_http1.get() - 1),
        }
        self.last_used.set(now);
        self.serve(pool);
    }

    /// An attempt to connect has failed. It was for those who waited when it began, whose numbers are below `before`; where others go on,
    /// or connections become free, for one of them.
    pub(crate) fn fail(self: &Rc<Self>, error: &Error, before: u64, pool: &Rc<Shared>) {
        let others = self.connecting.get() > 0 || self.open_http1.get() > 0;
        self.queue.fail(error, before, others);
        self.serve(pool);
    }

    /// Whether this is where the origin is, and not an alternative to it.
    pub(crate) fn is_at(&self, host: &str, port: u16) -> bool {
        self.origin.host == host && self.origin.port == port
    }

    /// Whether there are connections to a name, and nobody asks for its addresses.
    pub(crate) fn may_have_moved(&self) -> bool {
        let is_open = self.open_http1.get() > 0 || self.shared.borrow().is_some();
        is_open && self.origin.socket.is_none() && self.origin.host.parse::<IpAddr>().is_err() && !self.addresses.is_being_looked_up.get()
    }

    /// Takes in what a lookup has found, and gives connections to nobody any more whose addresses are forgotten. Those in use end with
    /// their last request.
    pub(crate) fn learn_addresses(&self, found: &[SocketAddr], options: &Options, now: Instant) {
        let Some(lifetime) = options.resolve_every.filter(|_| !found.is_empty()) else { return };
        self.addresses.learn(found.to_vec(), now, lifetime);
        let before = self.idle.borrow().len();
        self.idle.borrow_mut().retain(|idle| self.addresses.has(idle.connection.remote()));
        self.open_http1.set(self.open_http1.get() - (before - self.idle.borrow().len()));
        // An alternative of another name has addresses of its own.
        let host = self.alternative.borrow().as_ref().and_then(|(alternative, _)| alternative.host.clone());
        let is_elsewhere = options.http3 == crate::Http3::AltSvc && host.is_some_and(|host| host != self.origin.host);
        self.shared.borrow_mut().take_if(|shared| {
            let is_alternative = is_elsewhere && shared.connection.protocol() == Protocol::Http3;
            !is_alternative && !self.addresses.has(shared.connection.remote())
        });
    }

    pub(crate) fn learn(&self, said: AltSvc, now: Instant) {
        match said {
            AltSvc::Unsaid => {}
            AltSvc::Clear => *self.alternative.borrow_mut() = None,
            AltSvc::Http3(alternative) => {
                let until = now + alternative.max_age;
                *self.alternative.borrow_mut() = Some((alternative, until));
            }
        }
    }

    /// Where HTTP/3 is to be tried.
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
                Some((alternative.host.clone().unwrap_or_else(|| self.origin.host.clone()), alternative.port))
            }
        }
    }

    /// The shared connection of this number has brought a response.
    pub(crate) fn note_answer(&self, generation: Option<u64>, now: Instant) {
        if generation == Some(self.generation.get())
            && let Some(shared) = &*self.shared.borrow()
        {
            shared.answered.set(Some(now));
        }
    }

    /// Gives this shared connection to nobody any more, if it has brought nothing since `began`: its server may be gone.
    pub(crate) fn retire_silent(&self, generation: Option<u64>, began: Instant) {
        let answered = self.shared.borrow().as_ref().and_then(|shared| shared.answered.get());
        if answered.is_none_or(|answered| answered < began) {
            self.retire(generation);
        }
    }

    /// Whether requests go over HTTP/3 already.
    pub(crate) fn has_http3(&self) -> bool {
        let is_http3 = |connection: &Connection| connection.protocol() == Protocol::Http3 && connection.is_usable();
        self.shared.borrow().as_ref().is_some_and(|shared| is_http3(&shared.connection))
    }

    /// Gives this shared connection to nobody any more.
    pub(crate) fn retire(&self, generation: Option<u64>) {
        if generation == Some(self.generation.get()) {
            *self.shared.borrow_mut() = None;
        }
    }

    /// Closes the HTTP/1.1 connections that nobody uses: when one turns out to be closed, others may be that have not been heard of yet.
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

    /// Nobody uses or waits for a connection.
    pub(crate) fn is_unused(&self) -> bool {
        let idle = self.idle.borrow().len();
        self.shared_uses.get() == 0 && self.waiting.get() == 0 && self.connecting.get() == 0 && self.open_http1.get() == idle
    }

    /// Closes what nobody has used for `idle_timeout`.
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
