//! The worker: one descriptor and one function.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};
use std::time::{Duration, Instant};

use http::HeaderValue;

use crate::client::Connector;
use crate::config::{Budget, Config};
use crate::context::Context;
use crate::dispatch::Dispatcher;
use crate::group::{Group, ProcessLink, Route};
use crate::handler::Handler;
use crate::http3::{self, Http3};
use crate::listen::{Sockets, client_socket};
use crate::memory::MemoryPressure;
use crate::memory_release::MemoryRelease;
use crate::runtime::{Executor, Handle, Reactor, Timers, TurnGuard, Wakeup};
use crate::stats::Stats;
use crate::tcp::TcpListener;
use crate::tls::Identity;
use crate::transport::{Quinn, QuinnConfig, SendConfig, Transmit, Transport};
use crate::udp::{ReceiveBuffers, UdpSocket};

/// Connections accepted from each listener's queue when it closes: the kernel's default queue
/// length (net.core.somaxconn).
const LAST_ACCEPTS: usize = 4096;
/// Messages from other processes per turn, some hundred datagrams in all.
const FORWARDED_MESSAGES: usize = 4;

/// Time between two searches for idle connections while memory is short.
const RELIEF_INTERVAL: Duration = Duration::from_secs(1);

/// Owns the sockets, connections and futures of one thread.
///
/// To its host, a worker is a descriptor, which is readable when there is work, and
/// [`Worker::turn`]. A host with an event loop waits for the descriptor and calls `turn` with the
/// current time. A host without one calls [`Worker::wait`] before each turn. A turn does what is
/// ready within its [`Budget`], and makes the descriptor readable again if work is left.
pub struct Worker {
    number: u8,
    reactor: Reactor,
    executor: Executor,
    timers: Timers,
    wakeup: Arc<Wakeup>,
    group: Group,
    context: Rc<Context>,
    handler: Rc<dyn Handler>,
    dispatcher: Rc<Dispatcher>,
    /// State that the HTTP/3 endpoints share.
    http3: Rc<http3::WorkerState>,
    tcp: Vec<TcpListener>,
    quic: Vec<QuicSocket>,
    /// Dropped after the UDP sockets: other workers forward datagrams here until those are closed.
    forwarding: ProcessLink,
    buffers: ReceiveBuffers,
    drain: Option<Drain>,
    memory_release: MemoryRelease,
    /// When idle connections were last closed because memory was short.
    relieved: Option<Instant>,
    /// Turn counter. Each turn starts with another listener, so that a flood on one listener does
    /// not use up the budget of all.
    first: usize,
}

/// Returns the numbers below `length`, starting with another one in each turn.
fn rotated(turn: usize, length: usize) -> impl Iterator<Item = usize> {
    (0..length).map(move |index| (turn % length + index) % length)
}

/// A UDP socket and its connections.
struct QuicSocket {
    udp: UdpSocket,
    http3: Http3<Quinn>,
    outgoing: Vec<u8>,
    /// A train that the socket has not accepted yet; its bytes are in `outgoing`.
    blocked: Option<Transmit>,
}

struct Drain {
    until: Instant,
    forced: bool,
}

impl Worker {
    /// Creates worker `number` of `group`, without sockets.
    ///
    /// # Errors
    ///
    /// When the system is out of descriptors, or `number` is outside of the group.
    pub fn new(
        number: usize,
        group: &Group,
        config: Config,
        handler: impl Handler,
    ) -> io::Result<Self> {
        if number >= group.size() {
            return Err(io::Error::other("invalid worker number: outside of the group"));
        }
        let (reactor, waker) = Reactor::new()?;
        let wakeup = Arc::new(Wakeup::new(waker));
        let forwarding = group.enter(number, &wakeup, reactor.handle())?;
        let executor = Executor::new(wakeup.clone());
        let timers = Timers::default();
        let handle = Handle::new(
            executor.clone(),
            timers.clone(),
            reactor.handle().clone(),
            wakeup.clone(),
            Instant::now(),
        );
        let handler = Rc::new(handler);
        group.memory().set_bytes(config.limits.memory_bytes());
        let context = Context::new(
            handle,
            config,
            group.stats_of(number).clone(),
            group.connection_counts().clone(),
        );
        Ok(Self {
            number: number as u8,
            reactor,
            executor,
            timers,
            wakeup,
            group: group.clone(),
            forwarding,
            dispatcher: Dispatcher::new(context.clone(), handler.clone()),
            http3: http3::WorkerState::new(),
            context,
            handler,
            tcp: Vec::new(),
            quic: Vec::new(),
            buffers: ReceiveBuffers::new(),
            drain: None,
            memory_release: MemoryRelease::default(),
            relieved: None,
            first: 0,
        })
    }

    /// Serves `sockets`, with `identity` if they are secure.
    ///
    /// All workers of a group must call this for their shares of the same listeners, in the same
    /// order.
    ///
    /// # Errors
    ///
    /// When the sockets are secure and `identity` is `None`, or the system cannot watch them.
    pub fn listen(&mut self, sockets: Sockets, identity: Option<&Identity>) -> io::Result<()> {
        let identity = match identity {
            Some(identity) if sockets.secure => Some(identity),
            None if sockets.secure => {
                return Err(io::Error::other("missing identity: the listener is secure"));
            }
            _ => None,
        };
        let alt_svc = sockets
            .udp
            .as_ref()
            .and_then(|_| self.context.config.alt_svc.value(sockets.address.port()));
        let tls = identity
            .map(|identity| identity.tcp(&self.context.config.tls_options(), &self.context.stats));
        if let Some(tcp) = sockets.tcp {
            self.tcp.push(TcpListener::new(tcp, tls, alt_svc.clone(), self.reactor.handle())?);
        }
        if let (Some(udp), Some(identity)) = (sockets.udp, identity) {
            self.add_quic(udp, Some(identity), alt_svc)?;
        }
        Ok(())
    }

    /// Uses `identity` for new connections on every secure listener; existing connections keep
    /// theirs.
    ///
    /// # Errors
    ///
    /// When the identity cannot be used for QUIC. Nothing changes then.
    pub fn set_identity(&mut self, identity: &Identity) -> io::Result<()> {
        let Context { config, stats, .. } = &*self.context;
        for quic in &mut self.quic {
            quic.http3
                .transport
                .set_tls(identity.quic(&config.tls_options(), stats))
                .map_err(io::Error::other)?;
        }
        for listener in self.tcp.iter_mut().filter(|listener| listener.is_secure()) {
            listener.set_tls(identity.tcp(&config.tls_options(), stats));
        }
        Ok(())
    }

    /// Returns a connector that opens connections to servers with `tls`. Its ALPN protocols are set
    /// as needed.
    ///
    /// # Errors
    ///
    /// When no UDP socket can be opened, or `tls` does not allow TLS 1.3.
    pub fn connector(&mut self, tls: &rustls::ClientConfig) -> io::Result<Connector> {
        let udp = client_socket()?;
        let http3 = self.add_quic(udp, None, None)?.http3.client();
        let Config { congestion, limits, .. } = &self.context.config;
        Connector::new(self.handle().clone(), tls, http3, *congestion, limits.clone())
            .map_err(io::Error::other)
    }

    fn add_quic(
        &mut self,
        udp: std::net::UdpSocket,
        identity: Option<&Identity>,
        alt_svc: Option<HeaderValue>,
    ) -> io::Result<&QuicSocket> {
        let udp = UdpSocket::new(udp, self.reactor.handle())?;
        let config = &self.context.config;
        let tls =
            identity.map(|identity| identity.quic(&config.tls_options(), &self.context.stats));
        let quinn = QuinnConfig::new(
            &config.limits,
            SendConfig::of(config),
            tls,
            self.group.keys().clone(),
            config.qlog.clone(),
        );
        let quinn = quinn.map_err(io::Error::other)?.offering(config).with_wakeup(&self.wakeup);
        let Context { stats, connection_counts, windows, .. } = &*self.context;
        let transport = Quinn::new(
            quinn,
            self.number,
            udp.address(),
            udp.may_fragment(),
            stats.clone(),
            connection_counts.clone(),
            windows.clone(),
        );
        let http3 = Http3::new(transport, self.dispatcher.clone(), self.http3.clone(), alt_svc);
        self.quic.push(QuicSocket { udp, http3, outgoing: Vec::new(), blocked: None });
        Ok(&self.quic[self.quic.len() - 1])
    }

    pub(crate) fn handler(&self) -> Rc<dyn Handler> {
        self.handler.clone()
    }

    /// Returns the handle for futures and handlers on this worker.
    pub fn handle(&self) -> &Handle {
        &self.context.handle
    }

    /// Blocks until there is work, for at most `timeout`. For hosts without an event loop.
    ///
    /// # Errors
    ///
    /// Errors of the poller, after which the worker cannot continue.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.reactor.poll(timeout).map(drop)
    }

    /// Runs one turn: does what is ready, within the budget. `now` must not decrease from one turn
    /// to the next.
    ///
    /// # Errors
    ///
    /// Errors of the poller, after which the worker cannot continue.
    pub fn turn(&mut self, now: Instant) -> io::Result<()> {
        // The time of a test may be virtual; how long a turn takes is not.
        let began = Instant::now();
        let result = self.run_turn(now);
        self.context.stats.turns.observe(began.elapsed());
        result
    }

    fn run_turn(&mut self, now: Instant) -> io::Result<()> {
        let wakeup = self.wakeup.clone();
        let _in_turn = TurnGuard::enter(&wakeup);
        let executor = self.executor.clone();
        let _runs_here = executor.enter();
        self.context.handle.begin_turn(now);
        self.context.memory.begin_turn();
        self.first = self.first.wrapping_add(1);
        let mut left = self.context.config.budget;
        let mut more_events = self.reactor.poll(Some(Duration::ZERO))?;
        self.wakeup.rearm();
        self.timers.advance(now);
        self.quic.iter_mut().for_each(|quic| quic.http3.transport.handle_timeout(now));
        self.take_forwarded(now);
        let mut parcels = FORWARDED_MESSAGES;
        loop {
            self.accept(&mut left);
            self.receive_forwarded(now, &mut parcels);
            self.receive(now, &mut left);
            self.executor.allow_eager(left.polls);
            let mut polled = self.executor.run(left.polls);
            self.context.stats.handler_panics.add(self.executor.take_panics());
            // The first socket may use all remaining polls of the turn.
            for index in rotated(self.first, self.quic.len()) {
                self.quic[index].http3.process(now);
            }
            self.dispatcher.flush();
            polled += left.polls - self.executor.eager();
            left.polls = left.polls.saturating_sub(polled);
            let spent = left.polls == 0;
            if spent || !(self.has_work(&left) || (parcels > 0 && self.forwarding.is_readable())) {
                break;
            }
        }
        let holding = self.context.handle.end_turn();
        if left.polls > 0 {
            // Without polls left, the rest is done in the next turn, which starts at once.
            self.executor.run(holding);
            self.context.stats.handler_panics.add(self.executor.take_panics());
        }
        for index in rotated(self.first, self.quic.len()) {
            self.quic[index].send(now, &mut left.sends, &self.context.stats);
        }
        self.drain(now);
        self.context.count_memory();
        self.relieve(now);
        self.memory_release.turn(
            now,
            self.context.stats.tcp_open.value() + self.context.stats.requests_open.value(),
        );
        // Sending may have raised events, and some work may have been out of budget.
        more_events |= self.has_work(&self.context.config.budget)
            || self.quic.iter().any(QuicSocket::can_send);
        more_events |= self.forwarding.is_readable();
        more_events |= self.context.handle.has_deferred();
        if more_events {
            self.wakeup.notify_descriptor()?;
        }
        let deadline = self.next_deadline();
        self.reactor.arm(now, deadline)
    }

    /// Begins a graceful shutdown: closes the listeners, sends GOAWAY on existing connections, and
    /// gives open requests `grace` to finish.
    ///
    /// [`Worker::is_finished`] tells when it is complete. Of several calls, the earliest deadline
    /// counts.
    pub fn shut_down(&mut self, now: Instant, grace: Duration) {
        if let Some(drain) = &mut self.drain {
            // A host may call this after each turn; that alone must not cause another turn.
            if now + grace < drain.until {
                drain.until = now + grace;
                self.wakeup.notify();
            }
            return;
        }
        self.group.leave(self.number);
        self.close_listeners();
        self.context.shutdown.begin();
        self.quic.iter_mut().for_each(|quic| quic.http3.go_away(now));
        self.drain = Some(Drain { until: now + grace, forced: false });
        self.wakeup.notify();
    }

    /// Whether a shutdown is complete.
    pub fn is_finished(&self) -> bool {
        let Some(drain) = &self.drain else { return false };
        self.is_idle() || drain.forced
    }

    /// Whether there are no connections.
    pub fn is_idle(&self) -> bool {
        self.context.stats.tcp_open.value() == 0
            && self.quic.iter().all(|quic| quic.http3.is_idle() && !quic.has_pending())
    }

    /// Stops accepting connections; existing ones go on unchanged. The TCP ports are free again.
    pub fn stop_listening(&mut self) {
        self.group.leave(self.number);
        self.close_listeners();
        self.quic.iter_mut().for_each(|quic| quic.http3.refuse_new());
    }

    /// Closes connections that have served a request and have none open; new connections are still
    /// accepted. Over HTTP/2 and HTTP/3, GOAWAY tells the client which requests were not served.
    pub fn close_idle_connections(&mut self, now: Instant) {
        self.context
            .tcp_connections
            .borrow()
            .iter()
            .for_each(|(_, (activity, _))| activity.close_if_idle());
        self.context.shutdown.wake_all();
        self.quic.iter_mut().for_each(|quic| quic.http3.close_idle(now));
        self.wakeup.notify();
    }

    /// Closes all client connections at once, whatever their state; new connections are still
    /// accepted.
    ///
    /// Incomplete responses are cut off; their handlers see it as if the client had disconnected.
    pub fn close_connections(&mut self, now: Instant) {
        self.context
            .tcp_connections
            .borrow()
            .iter()
            .for_each(|(_, (_, task))| self.context.handle.cancel(*task));
        for quic in &mut self.quic {
            if quic.http3.close_serving(now) {
                quic.http3.process(now);
                quic.send(now, &mut { usize::MAX }, &self.context.stats);
            }
        }
        self.wakeup.notify();
    }

    fn close_listeners(&mut self) {
        for listener in &mut self.tcp {
            // Connections left in the kernel's queue would be reset.
            listener.accept(LAST_ACCEPTS, &self.dispatcher);
        }
        self.tcp.clear();
    }

    fn drain(&mut self, now: Instant) {
        let Some(drain) = self.drain.as_mut().filter(|drain| !drain.forced) else { return };
        drain.forced = now >= drain.until;
        if drain.forced {
            let stats = &self.context.stats;
            stats.requests_cut_off.add(stats.requests_open.value() + stats.tunnels_open.value());
        }
        // Handlers may need their outgoing connections as long as clients are served.
        let is_serving = self.context.stats.tcp_open.value() > 0
            || self.quic.iter().any(|quic| quic.http3.is_serving());
        for quic in &mut self.quic {
            let closed = if drain.forced {
                quic.http3.close_all(now)
            } else {
                !is_serving && quic.http3.close_unused(now)
            };
            if closed {
                quic.http3.process(now);
                quic.send(now, &mut { usize::MAX }, &self.context.stats);
            }
        }
    }

    /// Returns unused memory to the system while memory is short, and closes idle connections when
    /// there is none for requests on them anyway.
    fn relieve(&mut self, now: Instant) {
        let pressure = self.context.memory.pressure();
        if pressure < MemoryPressure::Shrink
            || self.relieved.is_some_and(|relieved| now < relieved + RELIEF_INTERVAL)
        {
            return;
        }
        self.relieved = Some(now);
        self.memory_release.release();
        if pressure >= MemoryPressure::RefuseRequests {
            self.close_idle_connections(now);
        }
    }

    fn accept(&mut self, left: &mut Budget) {
        // The pause's timer wakes the worker by itself; there is no future to wake.
        let mut cx = TaskContext::from_waker(Waker::noop());
        for index in rotated(self.first, self.tcp.len()) {
            let listener = &mut self.tcp[index];
            listener.poll_pause(&mut cx);
            if listener.is_ready() {
                left.accepts -= listener.accept(left.accepts, &self.dispatcher);
            }
        }
    }

    fn receive(&mut self, now: Instant, left: &mut Budget) {
        let Self { quic, buffers, group, forwarding, context, number, first, .. } = self;
        let limits = &context.config.limits;
        for index in rotated(*first, quic.len()) {
            let QuicSocket { udp, http3, .. } = &mut quic[index];
            while left.receive_batches > 0 && udp.is_readable() {
                left.receive_batches -= 1;
                let transport = &mut http3.transport;
                let separately = context.memory.keeps_datagrams();
                let more = udp.receive(buffers, separately, |datagram| {
                    context.stats.datagrams_received.add(1);
                    match group.route(*number, &datagram.data) {
                        Route::Own => transport.handle_datagram(now, datagram),
                        // The datagram comes back if there is no such worker: its connection
                        // belonged to a worker that has ended.
                        Route::Worker(worker) => {
                            if let Some(datagram) = group.pass_on(
                                now,
                                worker,
                                index,
                                datagram,
                                forwarding,
                                limits,
                                &context.stats,
                            ) {
                                transport.handle_datagram(now, datagram);
                            }
                        }
                        Route::First(named) => {
                            let other = group.worker_for_first_packet(
                                now,
                                *number,
                                named,
                                datagram.remote,
                                transport.is_refusing(),
                                forwarding,
                            );
                            let Some(other) = other else {
                                return transport.handle_datagram(now, datagram);
                            };
                            let back = transport.handle_first(now, datagram);
                            let pass = |back| {
                                group.pass_on(
                                    now,
                                    other,
                                    index,
                                    back,
                                    forwarding,
                                    limits,
                                    &context.stats,
                                )
                            };
                            if let Some(datagram) = back.and_then(pass) {
                                transport.handle_datagram(now, datagram);
                            }
                        }
                    }
                });
                if !more {
                    break;
                }
            }
        }
        forwarding.flush(now, &context.stats, |socket, datagram| {
            if let Some(quic) = quic.get_mut(socket) {
                quic.http3.transport.handle_datagram(now, datagram);
            }
        });
    }

    fn take_forwarded(&mut self, now: Instant) {
        if self.group.size() == 1 {
            return;
        }
        for (socket, datagram) in self.group.collect(self.number) {
            if let Some(quic) = self.quic.get_mut(socket) {
                quic.http3.transport.handle_datagram(now, datagram);
            }
        }
    }

    /// Receives datagrams forwarded by workers of other processes, at most `left` messages.
    fn receive_forwarded(&mut self, now: Instant, left: &mut usize) {
        while *left > 0 && self.forwarding.is_readable() {
            *left -= 1;
            let Self { forwarding, buffers, quic, .. } = self;
            forwarding.receive(buffers.one(), |socket, datagram| {
                if let Some(quic) = quic.get_mut(socket) {
                    quic.http3.transport.handle_datagram(now, datagram);
                }
            });
        }
    }

    fn has_work(&self, left: &Budget) -> bool {
        (left.polls > 0 && !self.executor.is_idle())
            || (left.accepts > 0 && self.tcp.iter().any(TcpListener::is_ready))
            || self.quic.iter().any(|quic| {
                (left.receive_batches > 0 && quic.udp.is_readable()) || quic.http3.has_work()
            })
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        let quic = self.quic.iter_mut().filter_map(|quic| quic.http3.poll_timeout()).min();
        let drain = self.drain.as_ref().filter(|drain| !drain.forced).map(|drain| drain.until);
        [self.timers.next_deadline(), quic, drain, self.memory_release.deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl AsFd for Worker {
    /// Returns the worker's one descriptor, which is readable when a turn has work.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reactor.as_fd()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.group.exit(self.number);
        self.executor.cancel_all();
    }
}

impl QuicSocket {
    /// Sends the connections' datagrams, in at most `budget` trains.
    fn send(&mut self, now: Instant, budget: &mut usize, stats: &Stats) {
        if !self.udp.is_writable() {
            return;
        }
        while *budget > 0 {
            let transmit = match self.blocked.take() {
                Some(transmit) => transmit,
                None => match self.http3.transport.poll_transmit(
                    now,
                    self.udp.max_segments(),
                    &mut self.outgoing,
                ) {
                    Some(transmit) => transmit,
                    None => return,
                },
            };
            *budget -= 1;
            match self.udp.send(&transmit, &self.outgoing[..transmit.size]) {
                Ok(()) => {
                    let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
                    stats.datagrams_sent.add(transmit.size.div_ceil(segment) as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = Some(transmit);
                    return;
                }
                // Lost, as on any link: too large for the path, no route, or blocked by a firewall.
                Err(_) => stats.datagrams_unsent.add(1),
            }
        }
    }

    fn can_send(&self) -> bool {
        self.udp.is_writable() && self.has_pending()
    }

    fn has_pending(&self) -> bool {
        self.blocked.is_some() || self.http3.transport.wants_to_send()
    }
}
