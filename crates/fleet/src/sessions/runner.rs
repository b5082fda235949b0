//! The store's thread: does the commands of the workers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pronghorn_engine::{SessionName, SharedSession};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::command::{Command, NAMES, Pending};
use super::config::{LogLine, RedisSessionsConfig};
use super::context::Context;
use super::counters::Counters;
use super::exchange::Exchange;
use super::lane::{Removed, Unit};
use super::node::{Live, Node};
use super::route::Route;
use super::sealed::{Keys, LIFETIME, Refused, SESSION_BYTES};
use super::settings::Own;
use crate::redis::{Dialer, Login, Reply};

/// Commands that are started before tasks get their turn.
const COMMANDS_PER_TURN: usize = 256;

/// Runs the store until all senders of commands are gone.
pub(super) fn run(
    runtime: Runtime,
    config: RedisSessionsConfig,
    keys: Arc<RwLock<Arc<Keys>>>,
    counters: Arc<Counters>,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let store = Rc::new(Store::start(config, keys, counters));
        let mut batch = Vec::new();
        while commands.recv_many(&mut batch, COMMANDS_PER_TURN).await > 0 {
            batch.drain(..).for_each(|command| store.begin(command));
        }
    });
    // Answers the lookups that are left.
    drop(tasks);
    // A name that is being resolved must not keep the thread.
    runtime.shutdown_background();
}

/// Keeps a panic of the log from ending a task that connects.
fn contained(log: Arc<LogLine>) -> Arc<LogLine> {
    Arc::new(move |line| drop(catch_unwind(AssertUnwindSafe(|| log(line)))))
}

struct Store {
    context: Rc<Context>,
    route: Rc<Route>,
    keys: Arc<RwLock<Arc<Keys>>>,
    announced: watch::Sender<Option<Arc<Own>>>,
}

/// A key whose value is on its way.
struct Awaited {
    /// Index of the name in the lookup.
    name: usize,
    key: Vec<u8>,
    node: Rc<Node>,
    live: Rc<Live>,
    answer: oneshot::Receiver<Result<Removed, String>>,
}

impl Store {
    fn start(
        config: RedisSessionsConfig,
        keys: Arc<RwLock<Arc<Keys>>>,
        counters: Arc<Counters>,
    ) -> Self {
        let login = Login { user: config.user, password: config.password };
        let context = Rc::new(Context {
            dialer: Dialer { login, tls: config.tls },
            timeout: config.timeout,
            replicas: config.replicas,
            prefix: config.prefix,
            counters,
            log: contained(config.log),
            moved: tokio::sync::Notify::new(),
        });
        let route = Route::start(&context, config.servers);
        let (announced, announcements) = watch::channel(None);
        let exchange = Exchange::new(&context, &route, keys.clone(), config.announce_interval);
        spawn_local(exchange.run(announcements));
        Self { context, route, keys, announced }
    }

    fn begin(self: &Rc<Self>, command: Command) {
        let store = self.clone();
        match command {
            Command::Announce(own) => {
                self.announced.send_replace(Some(Arc::new(own)));
            }
            Command::Put { name, session, lifetime, slot } => {
                spawn_local(async move {
                    store.put(&name, &session, lifetime).await;
                    drop(slot);
                });
            }
            Command::Lookup { names, removes, pending } => {
                // Sent before other tasks run, so that lookups of one turn travel together.
                let awaited = store.send(&names, removes);
                if awaited.is_empty() {
                    return pending.finish(Vec::new());
                }
                spawn_local(
                    async move { store.finish(awaited, names.len(), removes, pending).await },
                );
            }
        }
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn put(&self, name: &SessionName, session: &[u8], lifetime: Duration) {
        let deadline = Instant::now() + self.context.timeout;
        if !self.try_put(name, session, lifetime.min(LIFETIME), deadline).await {
            self.context.counters.not_stored.add(1);
        }
    }

    async fn try_put(
        &self,
        name: &SessionName,
        session: &[u8],
        lifetime: Duration,
        deadline: Instant,
    ) -> bool {
        let counters = &self.context.counters;
        let milliseconds = lifetime.as_millis();
        if session.len() > SESSION_BYTES || milliseconds == 0 {
            return false;
        }
        let keys = self.keys();
        let key = keys.names(&self.context.prefix, name).swap_remove(0);
        let node = self.route.node(&key);
        let Some((node, live)) = node.and_then(|node| node.live().map(|live| (node, live))) else {
            counters.skipped.add(1);
            return false;
        };
        let value = keys.seal(&key, live.stamp(), SystemTime::now(), lifetime, session);
        let milliseconds = milliseconds.to_string();
        // Never repeated: if it has taken effect, the session may have been removed since.
        let parts: [&[u8]; 5] = [b"SET", &key, &value, b"PX", milliseconds.as_bytes()];
        match timeout_at(deadline, live.plain.command(&parts)).await {
            Ok(Ok(Reply::Status(_))) => {
                node.on_reply();
                node.on_stored(None);
                counters.stored.add(1);
                true
            }
            Ok(Ok(reply)) => {
                node.on_reply();
                let error = match &reply {
                    Reply::Error(error) => error,
                    _ => "ERR the reply to SET is no status",
                };
                node.on_error(&live, error);
                node.on_stored(Some(error));
                false
            }
            Ok(Err(_)) => {
                counters.failures.add(1);
                false
            }
            Err(_) => {
                node.on_timeout(&live);
                false
            }
        }
    }

    /// Sends a lookup's commands; returns those that a server does.
    fn send(&self, names: &[SessionName], removes: bool) -> Vec<Awaited> {
        let keys = self.keys();
        let mut awaited = Vec::new();
        for (name, session_name) in names.iter().enumerate().take(NAMES) {
            for key in keys.names(&self.context.prefix, session_name) {
                let node = self.route.node(&key);
                let Some((node, live)) = node.and_then(|node| node.live().map(|live| (node, live)))
                else {
                    self.context.counters.skipped.add(1);
                    continue;
                };
                let (sender, answer) = oneshot::channel();
                if removes {
                    live.remove(Unit { key: key.clone(), answer: sender });
                } else {
                    spawn_local(read(live.clone(), key.clone(), sender));
                }
                awaited.push(Awaited { name, key, node, live, answer });
            }
        }
        awaited
    }

    async fn finish(&self, awaited: Vec<Awaited>, names: usize, removes: bool, pending: Pending) {
        let deadline = Instant::from_std(pending.started + self.context.timeout);
        let keys = self.keys();
        let mut sessions = vec![None; names];
        let mut is_missing = vec![true; names];
        let mut late: Vec<Rc<Live>> = Vec::new();
        for one in awaited {
            let removed = match timeout_at(deadline, one.answer).await {
                Ok(Ok(Ok(removed))) => {
                    one.node.on_reply();
                    removed
                }
                Ok(Ok(Err(error))) => {
                    one.node.on_reply();
                    one.node.on_error(&one.live, &error);
                    is_missing[one.name] = false;
                    continue;
                }
                Ok(Err(_)) => {
                    self.context.counters.failures.add(1);
                    is_missing[one.name] = false;
                    continue;
                }
                Err(_) => {
                    // One lookup counts once, however many names it has.
                    if !late.iter().any(|live| Rc::ptr_eq(live, &one.live)) {
                        one.node.on_timeout(&one.live);
                        late.push(one.live);
                    }
                    is_missing[one.name] = false;
                    continue;
                }
            };
            if let Some(value) = &removed.value {
                is_missing[one.name] = false;
                let session = self.open(&keys, &one.key, value, &removed, removes);
                sessions[one.name] = session.or(sessions[one.name].take());
            }
        }
        let missing = is_missing.iter().filter(|is_missing| **is_missing).count();
        self.context.counters.missing.add(missing);
        self.context.counters.latency.observe(pending.started.elapsed());
        pending.finish(sessions);
    }

    fn open(
        &self,
        keys: &Keys,
        key: &[u8],
        value: &Bytes,
        removed: &Removed,
        removes: bool,
    ) -> Option<SharedSession> {
        let counters = &self.context.counters;
        let opened = match keys.open(key, SystemTime::now(), value) {
            Ok(opened) => opened,
            Err(refused) => {
                match refused {
                    Refused::Unopened => counters.unopened.add(1),
                    Refused::Expired => counters.expired.add(1),
                }
                return None;
            }
        };
        counters.found.add(1);
        let is_same_run = removed.stamp == Some(opened.stamp);
        if removes {
            match (is_same_run, removed.is_acknowledged) {
                (true, true) => counters.for_good.add(1),
                (true, false) => counters.unacknowledged.add(1),
                (false, _) => counters.other_run.add(1),
            }
        }
        let is_taken_for_good = removes && is_same_run && removed.is_acknowledged;
        Some(SharedSession { value: opened.session, is_taken_for_good })
    }
}

/// Reads a key without removing it.
async fn read(live: Rc<Live>, key: Vec<u8>, answer: oneshot::Sender<Result<Removed, String>>) {
    let Ok(reply) = live.plain.command(&[b"GET", &key]).await else { return };
    let found = |value| Ok(Removed { value, stamp: None, is_acknowledged: false });
    let _ = answer.send(match reply {
        Reply::Bulk(value) => found(Some(value)),
        Reply::Nil => found(None),
        Reply::Error(error) => Err(error),
        _ => Err("ERR the reply to GET is no string".to_owned()),
    });
}
