//! One endpoint with its executor and timers, as a worker has them, on a clock and a network that are not real.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::context::Context;
use crate::http3::Http3;
use crate::runtime::{Executor, Handle, Reactor, Timers, TurnGuard, Wakeup};
use crate::seats::Seats;
use crate::stats::Stats;
use crate::transport::{Datagram, EndpointKeys, Quinn, QuinnConfig, Sending, Transmit, Transport};
use crate::{Config, Handler};

/// Datagrams of one GSO train.
const SEGMENTS: usize = 10;

/// More rounds than this in one turn, and something goes round in circles.
const ROUNDS: usize = 10_000;

pub(crate) struct Host {
    pub(crate) http3: Http3<Quinn>,
    pub(crate) context: Rc<Context>,
    executor: Executor,
    timers: Timers,
    wakeup: Arc<Wakeup>,
    /// Never polled: the wake-up needs its descriptor.
    _reactor: Reactor,
    outgoing: Vec<u8>,
}

impl Host {
    /// `tls`: the identity of a server.
    pub(crate) fn new(now: Instant, config: Config, tls: Option<Arc<rustls::ServerConfig>>, handler: impl Handler, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let (reactor, waker) = Reactor::new().unwrap();
        let wakeup = Arc::new(Wakeup::new(waker));
        let executor = Executor::new(wakeup.clone());
        let timers = Timers::default();
        timers.advance(now);
        let handle = Handle::new(executor.clone(), timers.clone(), reactor.handle().clone(), wakeup.clone(), now);
        let stats = Arc::<Stats>::default();
        let keys = EndpointKeys::from_rng(&mut rng);
        let quinn =
            QuinnConfig::new(&config.limits, Sending::of(&config), tls, keys, None).unwrap().offering(&config).with_seed(rng.random());
        let context = Context::new(handle, config, Rc::new(handler), stats.clone(), Seats::new());
        *context.rng.borrow_mut() = rng;
        context.date.pin(now);
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        let transport = Quinn::new(quinn, 0, address, false, stats, context.seats.clone(), context.windows.clone());
        let http3 = Http3::new(transport, context.clone(), None);
        Self { http3, context, executor, timers, wakeup, _reactor: reactor, outgoing: Vec::new() }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.context.handle
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.context.stats
    }

    /// What a worker's turn does, in its order.
    pub(crate) fn turn(&mut self, now: Instant, arrived: impl Iterator<Item = Datagram>, mut send: impl FnMut(&Transmit, &[u8])) {
        let wakeup = self.wakeup.clone();
        let _in_turn = TurnGuard::enter(&wakeup);
        self.context.handle.begin_turn(now);
        self.timers.advance(now);
        self.http3.transport.handle_timeout(now);
        arrived.for_each(|datagram| self.http3.transport.handle_datagram(now, datagram));
        for round in 0.. {
            assert!(round < ROUNDS, "a turn goes round in circles");
            self.executor.run(self.context.config.budget.polls);
            self.http3.process(now);
            if !self.http3.has_work() && self.executor.is_idle() {
                break;
            }
        }
        while let Some(transmit) = self.http3.transport.poll_transmit(now, SEGMENTS, &mut self.outgoing) {
            send(&transmit, &self.outgoing[..transmit.size]);
        }
    }

    /// Whether another turn is due at once.
    pub(crate) fn wants_turn(&self) -> bool {
        self.http3.has_work() || !self.executor.is_idle() || self.context.handle.has_deferred() || self.http3.transport.wants_to_send()
    }

    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        [self.timers.next_deadline(), self.http3.poll_timeout()].into_iter().flatten().min()
    }

    /// Futures that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.executor.tasks()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.executor.cancel_all();
    }
}
