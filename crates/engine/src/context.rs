//! State that all connections of a worker share.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use slab::Slab;

use crate::Config;
use crate::connection_limits::ConnectionCounts;
use crate::date::Date;
use crate::gauge::Gauge;
use crate::memory::WorkerMemory;
use crate::runtime::Handle;
use crate::shutdown::Shutdown;
use crate::stats::Stats;
use crate::tcp::Activity;
use crate::window_budget::WindowBudget;

/// Memory of a connection over TCP besides its content: TLS, protocol state, tasks. Measured.
const OPEN_TCP_BYTES: u64 = 56 << 10;
/// The same over QUIC.
const OPEN_QUIC_BYTES: u64 = 44 << 10;
/// Memory of a request besides its content, with its connection to a server behind the handler.
const OPEN_REQUEST_BYTES: u64 = 16 << 10;

pub(crate) struct Context {
    pub(crate) handle: Handle,
    pub(crate) config: Config,
    pub(crate) stats: Arc<Stats>,
    pub(crate) shutdown: Rc<Shutdown>,
    pub(crate) connection_counts: Arc<ConnectionCounts>,
    pub(crate) windows: Rc<WindowBudget>,
    pub(crate) memory: Rc<WorkerMemory>,
    /// Requests whose response is not complete.
    pub(crate) open_requests: Gauge,
    /// Upgraded connections and streams that are open.
    pub(crate) open_tunnels: Gauge,
    /// TCP connections, each with the key of its task.
    pub(crate) tcp_connections: RefCell<Slab<(Rc<Activity>, usize)>>,
    /// Random numbers for connections. A simulation sets its own generator here.
    pub(crate) rng: RefCell<StdRng>,
    pub(crate) date: Date,
}

impl Context {
    pub(crate) fn new(
        handle: Handle,
        config: Config,
        stats: Arc<Stats>,
        connection_counts: Arc<ConnectionCounts>,
    ) -> Rc<Self> {
        let date = Date::new(handle.now());
        let open_requests = Gauge::shown(&stats, |stats| &stats.requests_open);
        let open_tunnels = Gauge::shown(&stats, |stats| &stats.tunnels_open);
        let rng = RefCell::new(StdRng::from_rng(&mut rand::rng()));
        let memory = Rc::new(WorkerMemory::new(connection_counts.memory().clone()));
        Rc::new(Self {
            handle,
            config,
            stats,
            shutdown: Rc::default(),
            connection_counts,
            windows: Rc::new(WindowBudget::new(memory.clone())),
            memory,
            open_requests,
            open_tunnels,
            tcp_connections: RefCell::default(),
            rng,
            date,
        })
    }

    /// Publishes what the worker holds for its peers. Called at the end of each turn.
    pub(crate) fn count_memory(&self) {
        let Self { stats, memory, .. } = self;
        memory.end_turn(
            stats.tcp_open.value() * OPEN_TCP_BYTES
                + stats.quic_open.value() * OPEN_QUIC_BYTES
                + stats.requests_open.value() * OPEN_REQUEST_BYTES
                + stats.tunnels_open.value() * OPEN_REQUEST_BYTES,
        );
    }
}
