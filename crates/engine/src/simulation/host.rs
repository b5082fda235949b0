//! One endpoint with its executor and timers, like in a worker, on a simulated clock and network.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::connection_limits::ConnectionCounts;
use crate::context::Context;
use crate::dispatch::Dispatcher;
use crate::http3::{self, Http3};
use crate::runtime::{Executor, Handle, Reactor, Timers, TurnGuard, Wakeup};
use crate::stats::Stats;
use crate::tls::ListenerTls;
use crate::transport::{
    Datagram, EndpointKeys, Quinn, QuinnConfig, SendConfig, Transmit, Transport,
};
use crate::{Config, Handler};

/// Datagrams of one GSO train.
const SEGMENTS: usize = 10;

/// More rounds than this in one turn mean an endless loop.
const ROUNDS: usize = 10_000;

pub(crate) struct Host {
    pub(crate) http3: Http3<Quinn>,
    pub(crate) context: Rc<Context>,
    executor: Executor,
    timers: Timers,
    wakeup: Arc<Wakeup>,
    /// Never polled: it owns the wake-up's descriptor.
    _reactor: Reactor,
    outgoing: Vec<u8>,
}

impl Host {
    /// Creates an endpoint. `tls` is the identity of a server.
    pub(crate) fn new(
        now: Instant,
        config: Config,
        tls: Option<ListenerTls>,
        handler: impl Handler,
        seed: u64,
    ) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let (reactor, waker) = Reactor::new().unwrap();
        let wakeup = Arc::new(Wakeup::new(waker));
        let executor = Executor::new(wakeup.clone());
        let timers = Timers::default();
        timers.advance(now);
        let handle = Handle::new(
            executor.clone(),
            timers.clone(),
            reactor.handle().clone(),
            wakeup.clone(),
            now,
        );
        let stats = Arc::<Stats>::default();
        let keys = EndpointKeys::from_rng(&mut rng);
        let quinn = QuinnConfig::new(&config.limits, SendConfig::of(&config), tls, keys, None)
            .unwrap()
            .offering(&config)
            .with_seed(rng.random());
        let context = Context::new(handle, config, stats.clone(), ConnectionCounts::new());
        let dispatcher = Dispatcher::new(context.clone(), Rc::new(handler));
        *context.rng.borrow_mut() = rng;
        context.date.pin(now);
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        let transport = Quinn::new(
            quinn,
            0,
            address,
            false,
            stats,
            context.connection_counts.clone(),
            context.windows.clone(),
        );
        let http3 = Http3::new(transport, dispatcher, http3::WorkerState::new(), None);
        Self { http3, context, executor, timers, wakeup, _reactor: reactor, outgoing: Vec::new() }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.context.handle
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.context.stats
    }

    /// Runs a turn in the same order as a worker.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        arrived: impl Iterator<Item = Datagram>,
        mut send: impl FnMut(&Transmit, &[u8]),
    ) {
        let wakeup = self.wakeup.clone();
        let _in_turn = TurnGuard::enter(&wakeup);
        self.context.handle.begin_turn(now);
        self.context.memory.begin_turn();
        self.timers.advance(now);
        self.http3.transport.handle_timeout(now);
        arrived.for_each(|datagram| self.http3.transport.handle_datagram(now, datagram));
        for round in 0.. {
            assert!(round < ROUNDS, "endless loop in a turn");
            self.executor.run(self.context.config.budget.polls);
            self.http3.process(now);
            if !self.http3.has_work() && self.executor.is_idle() {
                break;
            }
        }
        while let Some(transmit) =
            self.http3.transport.poll_transmit(now, SEGMENTS, &mut self.outgoing)
        {
            send(&transmit, &self.outgoing[..transmit.size]);
        }
        self.context.count_memory();
    }

    /// Whether another turn is due at once.
    pub(crate) fn wants_turn(&self) -> bool {
        self.http3.has_work()
            || !self.executor.is_idle()
            || self.context.handle.has_deferred()
            || self.http3.transport.wants_to_send()
    }

    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        [self.timers.next_deadline(), self.http3.poll_timeout()].into_iter().flatten().min()
    }

    /// Number of unfinished futures.
    pub(crate) fn tasks(&self) -> usize {
        self.executor.tasks()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.executor.cancel_all();
    }
}
