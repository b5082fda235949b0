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
use crate::runtime::Handle;
use crate::shutdown::Shutdown;
use crate::stats::Stats;
use crate::tcp::Activity;
use crate::window_budget::WindowBudget;

pub(crate) struct Context {
    pub(crate) handle: Handle,
    pub(crate) config: Config,
    pub(crate) stats: Arc<Stats>,
    pub(crate) shutdown: Rc<Shutdown>,
    pub(crate) connection_counts: Arc<ConnectionCounts>,
    pub(crate) windows: Rc<WindowBudget>,
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
        Rc::new(Self {
            handle,
            config,
            stats,
            shutdown: Rc::default(),
            connection_counts,
            windows: Rc::default(),
            open_requests,
            open_tunnels,
            tcp_connections: RefCell::default(),
            rng,
            date,
        })
    }
}
