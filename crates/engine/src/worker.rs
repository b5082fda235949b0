//! The worker: one descriptor, one function.

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
use crate::group::{Group, Post, Route};
use crate::handler::Handler;
use crate::http3::Http3;
use crate::listen::{Sockets, client_socket};
use crate::runtime::{Executor, Handle, Reactor, Timers, TurnGuard, Wakeup};
use crate::spare_memory::SpareMemory;
use crate::stats::Stats;
use crate::tcp::TcpListener;
use crate::tls::Identity;
use crate::transport::{Quinn, QuinnConfig, Sending, Transmit, Transport};
use crate::udp::{ReceiveBuffers, UdpSocket};

/// Connections taken from each listener's queue when it closes: as many as the kernel queues by default (net.core.somaxconn).
const LAST_ACCEPTS: usize = 4096;
/// Messages of other processes that a turn takes, some hundred datagrams.
const PARCELS: usize = 4;

/// Owns sockets, connections and the futures of one thread.
///
/// To its host it is a descriptor, readable when there is something to do, and [`Worker::turn`]. A host with an event loop waits
/// for the descriptor there and calls `turn` with the time; a host without one calls [`Worker::wait`] in between. A turn does
/// what is ready within its [`Budget`] and makes the descriptor readable again if something is left.
pub struct Worker {
    number: u8,
    reactor: Reactor,
    executor: Executor,
    timers: Timers,
    wakeup: Arc<Wakeup>,
    group: Group,
    context: Rc<Context>,
    tcp: Vec<TcpListener>,
    quic: Vec<QuicSocket>,
    /// After the UDP sockets: until those are closed, others pass on what is for them.
    post: Post,
    buffers: ReceiveBuffers,
    drain: Option<Drain>,
    spare_memory: SpareMemory,
    /// Counts turns. Each begins with another listener, so that a flood on one does not use up what is for all.
    first: usize,
}

/// The numbers below `length`, beginning with another one each time that `turn` grows.
fn rotated(turn: usize, length: usize) -> impl Iterator<Item = usize> {
    (0..length).map(move |index| (turn % length + index) % length)
}

/// A UDP socket and the connections on it.
struct QuicSocket {
    udp: UdpSocket,
    http3: Http3<Quinn>,
    outgoing: Vec<u8>,
    /// A train that the socket did not take yet; it waits in `outgoing`.
    blocked: Option<Transmit>,
}

struct Drain {
    until: Instant,
    forced: bool,
}

impl Worker {
    /// Worker `number` of `group`. It has no socket yet.
    ///
    /// # Errors
    ///
    /// When the system has no descriptor left, or `number` is not one of the group's.
    pub fn new(number: usize, group: &Group, config: Config, handler: impl Handler) -> io::Result<Self> {
        if number >= group.size() {
            return Err(io::Error::other("no such worker in the group"));
        }
        let (reactor, waker) = Reactor::new()?;
        let wakeup = Arc::new(Wakeup::new(waker));
        let post = group.enter(number, &wakeup, reactor.handle())?;
        let executor = Executor::new(wakeup.clone());
        let timers = Timers::default();
        let handle = Handle::new(executor.clone(), timers.clone(), reactor.handle().clone(), wakeup.clone(), Instant::now());
        let context = Context::new(handle, config, Rc::new(handler), group.stats_of(number).clone(), group.seats().clone());
        Ok(Self {
            number: number as u8,
            reactor,
            executor,
            timers,
            wakeup,
            group: group.clone(),
            post,
            context,
            tcp: Vec::new(),
            quic: Vec::new(),
            buffers: ReceiveBuffers::new(),
            drain: None,
            spare_memory: SpareMemory::default(),
            first: 0,
        })
    }

    /// Serves `sockets`, with `identity` where they are secure.
    ///
    /// All workers of a group have to be given the shares of the same listeners in the same order.
    ///
    /// # Errors
    ///
    /// When the sockets are secure and there is no identity, or the system refuses to watch them.
    pub fn listen(&mut self, sockets: Sockets, identity: Option<&Identity>) -> io::Result<()> {
        let identity = match identity {
            Some(identity) if sockets.secure => Some(identity),
            None if sockets.secure => return Err(io::Error::other("a secure listener needs an identity")),
            _ => None,
        };
        let alt_svc = sockets.udp.as_ref().and_then(|_| self.context.config.alt_svc.value(sockets.address.port()));
        let tls = identity.map(|identity| identity.tcp(&self.context.config, &self.context.stats));
        if let Some(tcp) = sockets.tcp {
            self.tcp.push(TcpListener::new(tcp, tls, alt_svc.clone(), self.reactor.handle())?);
        }
        if let (Some(udp), Some(identity)) = (sockets.udp, identity) {
            self.add_quic(udp, Some(identity), alt_svc)?;
        }
        Ok(())
    }

    /// Serves connections that begin from here on with `identity`, on every secure listener; those there are go on with what they have.
    ///
    /// # Errors
    ///
    /// When the identity cannot be used for QUIC. Nothing has changed then.
    pub fn set_identity(&mut self, identity: &Identity) -> io::Result<()> {
        let Context { config, stats, .. } = &*self.context;
        for quic in &mut self.quic {
            quic.http3.transport.set_tls(identity.quic(config, stats)).map_err(io::Error::other)?;
        }
        for listener in self.tcp.iter_mut().filter(|listener| listener.is_secure()) {
            listener.set_tls(identity.tcp(config, stats));
        }
        Ok(())
    }

    /// Opens connections to servers, with TLS as `tls` says; its ALPN protocols are set as needed.
    ///
    /// # Errors
    ///
    /// When no UDP socket can be had, or `tls` does not allow TLS 1.3.
    pub fn connector(&mut self, tls: &rustls::ClientConfig) -> io::Result<Connector> {
        let udp = client_socket()?;
        let http3 = self.add_quic(udp, None, None)?.http3.client();
        let Config { congestion, limits, .. } = &self.context.config;
        Connector::new(self.handle().clone(), tls, http3, *congestion, limits.clone()).map_err(io::Error::other)
    }

    fn add_quic(&mut self, udp: std::net::UdpSocket, identity: Option<&Identity>, alt_svc: Option<HeaderValue>) -> io::Result<&QuicSocket> {
        let udp = UdpSocket::new(udp, self.reactor.handle())?;
        let config = &self.context.config;
        let tls = identity.map(|identity| identity.quic(config, &self.context.stats));
        let quinn = QuinnConfig::new(&config.limits, Sending::of(config), tls, self.group.keys().clone(), config.qlog.clone());
        let quinn = quinn.map_err(io::Error::other)?.offering(config);
        let Context { stats, seats, windows, .. } = &*self.context;
        let transport = Quinn::new(quinn, self.number, udp.address(), udp.may_fragment(), stats.clone(), seats.clone(), windows.clone());
        let http3 = Http3::new(transport, self.context.clone(), alt_svc);
        self.quic.push(QuicSocket { udp, http3, outgoing: Vec::new(), blocked: None });
        Ok(&self.quic[self.quic.len() - 1])
    }

    pub(crate) fn handler(&self) -> Rc<dyn Handler> {
        self.context.handler.clone()
    }

    /// For futures and handlers on this worker.
    pub fn handle(&self) -> &Handle {
        &self.context.handle
    }

    /// Blocks until there is something to do, at most `timeout`. For hosts without an event loop.
    ///
    /// # Errors
    ///
    /// Those of the poller, which leave nothing that the worker could go on with.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.reactor.poll(timeout).map(drop)
    }

    /// Does what is ready, within the budget. `now` must not go back from one turn to the next.
    ///
    /// # Errors
    ///
    /// Those of the poller, which leave nothing that the worker could go on with.
    pub fn turn(&mut self, now: Instant) -> io::Result<()> {
        let wakeup = self.wakeup.clone();
        let _in_turn = TurnGuard::enter(&wakeup);
        let executor = self.executor.clone();
        let _runs_here = executor.enter();
        self.context.handle.begin_turn(now);
        self.first = self.first.wrapping_add(1);
        let mut left = self.context.config.budget;
        let mut more_events = self.reactor.poll(Some(Duration::ZERO))?;
        self.wakeup.rearm();
        self.timers.advance(now);
        self.quic.iter_mut().for_each(|quic| quic.http3.transport.handle_timeout(now));
        self.take_mail(now);
        let mut parcels = PARCELS;
        loop {
            self.accept(&mut left);
            self.receive_parcels(now, &mut parcels);
            self.receive(now, &mut left);
            self.executor.allow_eager(left.polls);
            let mut polled = self.executor.run(left.polls);
            self.context.stats.handler_panics.add(self.executor.take_panics());
            // Whoever is first may take all that is left of the turn's polls.
            for index in rotated(self.first, self.quic.len()) {
                self.quic[index].http3.process(now);
            }
            self.context.handler.settle();
            polled += left.polls - self.executor.eager();
            left.polls = left.polls.saturating_sub(polled);
            let spent = left.polls == 0;
            if spent || !(self.has_work(&left) || (parcels > 0 && self.post.is_readable())) {
                break;
            }
        }
        let holding = self.context.handle.end_turn();
        if left.polls > 0 {
            // Where none is left it is for the next turn, which begins at once.
            self.executor.run(holding);
            self.context.stats.handler_panics.add(self.executor.take_panics());
        }
        for index in rotated(self.first, self.quic.len()) {
            self.quic[index].send(now, &mut left.sends, &self.context.stats);
        }
        self.drain(now);
        self.spare_memory.turn(now, self.context.stats.tcp_open.value() + self.context.stats.requests_open.value());
        // Sending may have raised events, and what was not done for want of budget waits.
        more_events |= self.has_work(&self.context.config.budget) || self.quic.iter().any(QuicSocket::can_send);
        more_events |= self.post.is_readable();
        more_events |= self.context.handle.has_deferred();
        if more_events {
            self.wakeup.notify_descriptor()?;
        }
        let deadline = self.next_deadline();
        self.reactor.arm(now, deadline)
    }

    /// Begins to end: no new connection, GOAWAY to those there are, and what runs is finished until `grace` is over.
    ///
    /// The worker is done when [`Worker::is_finished`] says so. Told again, it has until the earlier of the two times.
    pub fn shut_down(&mut self, now: Instant, grace: Duration) {
        if let Some(drain) = &mut self.drain {
            // A host that says so after each turn must not cause the next one by it.
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

    /// Whether there is no connection.
    pub fn is_idle(&self) -> bool {
        self.context.stats.tcp_open.value() == 0 && self.quic.iter().all(|quic| quic.http3.is_idle() && !quic.has_pending())
    }

    /// Takes no new connection; those there are go on as if nothing had happened. The TCP ports are free again.
    pub fn stop_listening(&mut self) {
        self.group.leave(self.number);
        self.close_listeners();
        self.quic.iter_mut().for_each(|quic| quic.http3.refuse_new());
    }

    /// Closes the connections on which no request is open, of those that have had one; new ones are taken as before. Clients over HTTP/2 and
    /// HTTP/3 are told which requests were not served (GOAWAY).
    pub fn close_idle_connections(&mut self, now: Instant) {
        self.context.tcp_connections.borrow().iter().for_each(|(_, (activity, _))| activity.close_if_idle());
        self.context.shutdown.rouse();
        self.quic.iter_mut().for_each(|quic| quic.http3.close_idle(now));
        self.wakeup.notify();
    }

    /// Closes all connections of clients at once, whatever goes on over them; new ones are taken as before.
    ///
    /// Responses that are not complete are cut off, and their handlers learn of it as of clients that leave.
    pub fn close_connections(&mut self, now: Instant) {
        self.context.tcp_connections.borrow().iter().for_each(|(_, (_, task))| self.context.handle.cancel(*task));
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
            // Those that wait in the kernel's queue would be reset.
            listener.accept(LAST_ACCEPTS, &self.context);
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
        // Until then handlers may need the connections that they have opened.
        let is_serving = self.context.stats.tcp_open.value() > 0 || self.quic.iter().any(|quic| quic.http3.is_serving());
        for quic in &mut self.quic {
            let closed = if drain.forced { quic.http3.close_all(now) } else { !is_serving && quic.http3.close_unused(now) };
            if closed {
                quic.http3.process(now);
                quic.send(now, &mut { usize::MAX }, &self.context.stats);
            }
        }
    }

    fn accept(&mut self, left: &mut Budget) {
        // The sleep of a pause wakes the worker by its timer; there is no future to wake.
        let mut cx = TaskContext::from_waker(Waker::noop());
        for index in rotated(self.first, self.tcp.len()) {
            let listener = &mut self.tcp[index];
            listener.poll_pause(&mut cx);
            if listener.is_ready() {
                left.accepts -= listener.accept(left.accepts, &self.context);
            }
        }
    }

    fn receive(&mut self, now: Instant, left: &mut Budget) {
        let Self { quic, buffers, group, post, context, number, first, .. } = self;
        let limits = &context.config.limits;
        for index in rotated(*first, quic.len()) {
            let QuicSocket { udp, http3, .. } = &mut quic[index];
            while left.receive_batches > 0 && udp.is_readable() {
                left.receive_batches -= 1;
                let transport = &mut http3.transport;
                let more = udp.receive(buffers, |datagram| {
                    context.stats.datagrams_received.add(1);
                    match group.route(*number, &datagram.data) {
                        Route::Own => transport.handle_datagram(now, datagram),
                        // If there is no such worker: a connection of a worker that has ended.
                        Route::Worker(worker) => {
                            if let Some(datagram) = group.pass_on(now, worker, index, datagram, post, limits, &context.stats) {
                                transport.handle_datagram(now, datagram);
                            }
                        }
                        Route::First(named) => {
                            let other = group.taker(now, *number, named, datagram.remote, transport.is_refusing(), post);
                            let Some(other) = other else { return transport.handle_datagram(now, datagram) };
                            let back = transport.handle_first(now, datagram);
                            let pass = |back| group.pass_on(now, other, index, back, post, limits, &context.stats);
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
        post.flush(now, &context.stats, |socket, datagram| {
            if let Some(quic) = quic.get_mut(socket) {
                quic.http3.transport.handle_datagram(now, datagram);
            }
        });
    }

    fn take_mail(&mut self, now: Instant) {
        if self.group.size() == 1 {
            return;
        }
        for (socket, datagram) in self.group.collect(self.number) {
            if let Some(quic) = self.quic.get_mut(socket) {
                quic.http3.transport.handle_datagram(now, datagram);
            }
        }
    }

    /// Takes what workers of other processes have passed on, at most `left` messages.
    fn receive_parcels(&mut self, now: Instant, left: &mut usize) {
        while *left > 0 && self.post.is_readable() {
            *left -= 1;
            let Self { post, buffers, quic, .. } = self;
            post.receive(buffers.one(), |socket, datagram| {
                if let Some(quic) = quic.get_mut(socket) {
                    quic.http3.transport.handle_datagram(now, datagram);
                }
            });
        }
    }

    fn has_work(&self, left: &Budget) -> bool {
        (left.polls > 0 && !self.executor.is_idle())
            || (left.accepts > 0 && self.tcp.iter().any(TcpListener::is_ready))
            || self.quic.iter().any(|quic| (left.receive_batches > 0 && quic.udp.is_readable()) || quic.http3.has_work())
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        let quic = self.quic.iter_mut().filter_map(|quic| quic.http3.poll_timeout()).min();
        let drain = self.drain.as_ref().filter(|drain| !drain.forced).map(|drain| drain.until);
        [self.timers.next_deadline(), quic, drain, self.spare_memory.deadline()].into_iter().flatten().min()
    }
}

impl AsFd for Worker {
    /// The one descriptor: readable when a turn has something to do.
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
    /// Sends what the connections have, at most `budget` trains.
    fn send(&mut self, now: Instant, budget: &mut usize, stats: &Stats) {
        if !self.udp.is_writable() {
            return;
        }
        while *budget > 0 {
            let transmit = match self.blocked.take() {
                Some(transmit) => transmit,
                None => match self.http3.transport.poll_transmit(now, self.udp.max_segments(), &mut self.outgoing) {
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
                // Lost, as on any link: too large for the path, no route, or refused by a firewall.
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
