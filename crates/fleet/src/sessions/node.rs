//! One server: connected to, watched, and connected to again when it fails.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use rand::Rng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::announcer::Announcer;
use super::context::Context;
use super::lane::{Lane, Unit};
use super::stamp::{self, Stamp};
use crate::redis::{Address, Candidates, Connection, Down, Reply};

/// Lookups in a row without a reply after which a server counts as unreachable. Handshakes do not
/// wait for it then, until it answers in time again.
const TIMEOUTS_IN_A_ROW: u32 = 3;
/// Time between two checks of a server that is connected, and longest time that a check takes
/// unless the timeout is longer.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Checks between two questions to the Sentinels: each server of a fleet connects to them for it.
const CHECKS_PER_QUESTION: u32 = 10;
/// Pauses between two attempts to connect; the first attempt follows at once.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that lived this long ends a row of failures.
const STEADY: Duration = Duration::from_millis(500);
/// A server, or the primary of several.
pub(super) struct Node {
    context: Rc<Context>,
    candidates: Candidates,
    live: RefCell<Option<Rc<Live>>>,
    timeouts: Cell<u32>,
    announcer: Announcer,
}

/// The connections to a reachable server.
pub(super) struct Live {
    address: Address,
    /// For everything but removals.
    pub(super) plain: Connection,
    /// For removals. Another connection if they wait for replicas, because the server reads nothing
    /// further from it meanwhile.
    lane: Lane,
    run_id: String,
    /// Nothing if the server does not name its run.
    stamp: Cell<Option<Stamp>>,
    failed: watch::Sender<Option<Down>>,
}

impl Live {
    /// Returns the stamp of sessions that are stored now.
    pub(super) fn stamp(&self) -> Stamp {
        self.stamp.get().unwrap_or_else(Stamp::unknown)
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn remove(&self, unit: Unit) {
        self.lane.send(unit);
    }

    /// Ends the use of these connections.
    pub(super) fn fail(&self, reason: Down) {
        self.failed.send_if_modified(|failed| {
            let is_first = failed.is_none();
            if is_first {
                *failed = Some(reason);
            }
            is_first
        });
    }
}

impl Node {
    pub(super) fn new(context: Rc<Context>, candidates: Candidates) -> Self {
        let announcer = Announcer::new(context.log.clone());
        Self { context, candidates, live: RefCell::default(), timeouts: Cell::default(), announcer }
    }

    /// Returns the connections if the server is reachable.
    pub(super) fn live(&self) -> Option<Rc<Live>> {
        self.live.borrow().clone()
    }

    /// Notes that a command had no reply in time.
    pub(super) fn on_timeout(&self, live: &Rc<Live>) {
        self.context.counters.timeouts.add(1);
        let is_current = self.live.borrow().as_ref().is_some_and(|now| Rc::ptr_eq(now, live));
        if !is_current {
            return;
        }
        self.timeouts.set(self.timeouts.get() + 1);
        if self.timeouts.get() >= TIMEOUTS_IN_A_ROW {
            live.fail(Down::new(format_args!(
                "no reply within {:?}, {TIMEOUTS_IN_A_ROW} times in a row",
                self.context.timeout
            )));
            // Before the watching task runs: the next lookups must not wait.
            self.set_live(None);
        }
    }

    /// Notes that a command had a reply in time.
    pub(super) fn on_reply(&self) {
        self.timeouts.set(0);
    }

    /// Notes an error that the server sent instead of doing a command.
    pub(super) fn on_error(&self, live: &Live, error: &str) {
        self.context.counters.failures.add(1);
        match error.split(' ').next().unwrap_or_default() {
            // The slot is on another node, or nowhere. The session is lost for this lookup.
            "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" => self.context.moved.notify_one(),
            // No command will succeed until the server is another or in another state.
            "READONLY" | "LOADING" | "MASTERDOWN" | "NOAUTH" | "MISCONF" => {
                live.fail(Down::new(error));
            }
            _ => {}
        }
    }

    /// Notes whether the server stored a session, and its error if not.
    pub(super) fn on_stored(&self, refusal: Option<&str>) {
        self.announcer.on_stored(|| self.name(), refusal);
    }

    /// Connects and watches the server until the task is aborted.
    pub(super) async fn supervise(self: Rc<Self>) {
        let mut attempt = 0;
        loop {
            match self.connect().await {
                Ok(live) => {
                    let since = Instant::now();
                    let live = Rc::new(live);
                    self.timeouts.set(0);
                    self.set_live(Some(live.clone()));
                    self.announcer.on_reachable(&live.address, live.stamp.get().is_some());
                    let reason = self.watch(&live).await;
                    self.set_live(None);
                    self.announcer.on_unreachable(&live.address, &reason);
                    if since.elapsed() >= STEADY {
                        attempt = 0;
                    }
                }
                Err(reason) => self.announcer.on_unreachable(&self.name(), &reason),
            }
            self.context.moved.notify_one();
            sleep(pause(attempt)).await;
            attempt += 1;
        }
    }

    /// Connects to the first candidate that is a primary.
    async fn connect(&self) -> Result<Live, Down> {
        let mut reason = Down::new("no address is configured");
        let addresses = self.context.dialer.resolve(&self.candidates).await?;
        let only = addresses.len() == 1;
        for address in addresses {
            match self.connect_to(&address).await {
                Ok(live) => return Ok(live),
                Err(down) if only => reason = down,
                Err(down) => reason = Down::new(format_args!("{address}: {down}")),
            }
        }
        Err(reason)
    }

    async fn connect_to(&self, address: &Address) -> Result<Live, Down> {
        let plain = self.open(address).await?;
        let (run, stamp) = self.probe(&plain).await?;
        let (removing, its_run) = if self.context.replicas == 0 {
            (plain.clone(), run.clone())
        } else {
            let removing = self.open(address).await?;
            let (run, _) = self.probe(&removing).await?;
            (removing, run)
        };
        let lane = Lane::start(removing, its_run, &self.context);
        let (failed, _) = watch::channel(None);
        let stamp = Cell::new(stamp);
        Ok(Live { address: address.clone(), plain, lane, run_id: run, stamp, failed })
    }

    async fn open(&self, address: &Address) -> Result<Connection, Down> {
        let connection = self.context.dialer.open(address).await?;
        self.context.counters.connections.add(1);
        Ok(connection)
    }

    /// Checks that the server does in time what is needed; returns its run ID and its stamp.
    async fn probe(&self, connection: &Connection) -> Result<(String, Option<Stamp>), Down> {
        let probing = async {
            let run = stamp::run_id(&connection.command(&[b"INFO", b"server"]).await?)?;
            let info = connection.command(&[b"INFO", b"replication"]).await?;
            let stamp = stamp::stamp(&run, &info)?;
            let key = format!("{}probe", self.context.prefix);
            // Needs the same permission, version and state as the removal of a session.
            let begun = Instant::now();
            let reply = connection.command(&[b"GETDEL", key.as_bytes()]).await?;
            match reply {
                Reply::Error(error) if !reply_is_redirection(&error) => Err(Down::new(error)),
                _ if begun.elapsed() > self.context.timeout => Err(Down::new(format_args!(
                    "a reply took {:?}, longer than the timeout of {:?}",
                    begun.elapsed(),
                    self.context.timeout
                ))),
                _ => Ok((run, stamp)),
            }
        };
        let limit = self.check_timeout();
        let late = |_| Down::new(format_args!("no reply within {limit:?}"));
        timeout(limit, probing).await.map_err(late)?
    }

    /// Returns why the server is not usable any more, when it is not.
    async fn watch(&self, live: &Live) -> Down {
        let mut failed = live.failed.subscribe();
        let failing = async {
            let reason = failed.wait_for(Option::is_some).await;
            reason.ok().and_then(|reason| reason.clone())
        };
        tokio::select! {
            // The reason for which a connection was closed is the first.
            biased;
            reason = failing => reason.unwrap_or_else(|| Down::new("the store ends")),
            reason = live.plain.closed() => reason,
            reason = live.lane.closed() => reason,
            reason = self.check(live) => reason,
        }
    }

    /// Checks a server that may have no other traffic, until it fails.
    async fn check(&self, live: &Live) -> Down {
        let limit = self.check_timeout();
        let late = |_| Down::new(format_args!("no reply within {limit:?}"));
        let mut checks = 0;
        loop {
            sleep(CHECK_INTERVAL).await;
            let info = timeout(limit, live.plain.command(&[b"INFO", b"replication"]));
            let info = info.await.map_err(late).flatten();
            match info.and_then(|info| stamp::stamp(&live.run_id, &info)) {
                Ok(stamp) => live.stamp.set(stamp),
                Err(down) => return down,
            }
            checks += 1;
            if checks < CHECKS_PER_QUESTION {
                continue;
            }
            checks = 0;
            if let Some(appointed) = self.successor(live).await {
                return Down::new(format_args!("Sentinel has appointed {appointed}"));
            }
        }
    }

    /// Returns the primary that Sentinel names, if it is another one.
    async fn successor(&self, live: &Live) -> Option<Address> {
        if matches!(self.candidates, Candidates::Fixed(_)) {
            return None;
        }
        let named = self.context.dialer.resolve(&self.candidates).await.ok()?;
        named.into_iter().next().filter(|named| *named != live.address)
    }

    /// A server may answer a check more slowly than a handshake.
    fn check_timeout(&self) -> Duration {
        CHECK_INTERVAL.max(self.context.timeout)
    }

    fn set_live(&self, live: Option<Rc<Live>>) {
        let reachable = &self.context.counters.reachable;
        let is_up = live.is_some();
        let before = self.live.replace(live);
        if let Some(before) = &before {
            // Commands without a reply would keep them open.
            before.plain.close();
            before.lane.close();
        }
        match (before.is_some(), is_up) {
            (false, true) => reachable.add(1),
            (true, false) => reachable.subtract(1),
            _ => {}
        }
    }

    /// Forgets the connections of a server that has left its cluster.
    pub(super) fn retire(&self) {
        self.set_live(None);
    }

    fn name(&self) -> String {
        match (&*self.live.borrow(), &self.candidates) {
            (Some(live), _) => live.address.to_string(),
            (None, Candidates::Fixed(addresses)) => {
                addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")
            }
            (None, Candidates::Sentinel { primary, .. }) => format!("Sentinel's {primary}"),
        }
    }
}

fn reply_is_redirection(error: &str) -> bool {
    matches!(error.split(' ').next(), Some("MOVED" | "ASK"))
}

/// Returns the pause before another attempt to connect. Random, so that the servers of a fleet do
/// not connect in step.
fn pause(attempt: u32) -> Duration {
    if attempt == 0 {
        return Duration::ZERO;
    }
    let longest = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(LONGEST_PAUSE);
    longest.mul_f64(rand::rng().random_range(0.5..1.0))
}
