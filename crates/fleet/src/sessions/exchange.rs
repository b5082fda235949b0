//! Exchanges the settings of this server with those of others through Redis.

use std::fmt::Write as _;
use std::rc::{Rc, Weak};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use rand::Rng;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::context::Context;
use super::node::{Live, Node};
use super::peers::{FIELD_BYTES, PEERS, Peers, Reading};
use super::route::Route;
use super::sealed::{Keys, milliseconds};
use super::settings::{Entry, Own};
use crate::redis::{Connection, Down, Reply, command};

/// Name of the hash with an entry for each server, behind the prefix of the sessions.
const HASH: &str = "nodes";
/// Time for one exchange, without connecting.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts while Redis is not reachable.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Exchanges in a row whose connections fail until the log says so.
const DOWN_IN_A_ROW: u32 = 2;
/// Entries that are opened before lookups get their turn.
const ENTRIES_PER_TURN: usize = 16;

/// The present announcement, if there is one.
pub(super) type Announced = watch::Receiver<Option<Arc<Own>>>;

/// Exchanges settings over a connection of its own, so that no lookup waits behind the entries of
/// hundreds of servers.
pub(super) struct Exchange {
    context: Rc<Context>,
    route: Rc<Route>,
    keys: Arc<RwLock<Arc<Keys>>>,
    interval: Duration,
    /// Name of the hash in Redis.
    hash: String,
    /// Tells this process from others with the same name.
    instance: String,
    peers: Peers,
    /// The connections of a server that does not allow the commands.
    refused_by: Weak<Live>,
    /// Exchanges in a row that have failed.
    failures: u32,
    /// Whether the log says so.
    is_failure_logged: bool,
}

/// Why an exchange has failed.
enum Failure {
    /// The connection.
    Down(Down),
    /// An error of Redis.
    Error(String),
}

impl From<Down> for Failure {
    fn from(down: Down) -> Self {
        Self::Down(down)
    }
}

impl Exchange {
    pub(super) fn new(
        context: &Rc<Context>,
        route: &Rc<Route>,
        keys: Arc<RwLock<Arc<Keys>>>,
        interval: Duration,
    ) -> Self {
        let mut instance = String::new();
        for byte in rand::random::<[u8; 8]>() {
            // Writing to a string never fails.
            let _ = write!(instance, "{byte:02x}");
        }
        Self {
            context: context.clone(),
            route: route.clone(),
            keys,
            interval,
            hash: format!("{}{HASH}", context.prefix),
            instance,
            peers: Peers::default(),
            refused_by: Weak::new(),
            failures: 0,
            is_failure_logged: false,
        }
    }

    /// Exchanges settings at once when they are announced, and then in each interval.
    pub(super) async fn run(mut self, mut announced: Announced) {
        while announced.wait_for(Option::is_some).await.is_ok() {
            let Some(own) = announced.borrow_and_update().clone() else { continue };
            let pause = self.exchange(&own).await;
            tokio::select! {
                () = sleep(pause) => {}
                changed = announced.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Returns the time until the next exchange.
    async fn exchange(&mut self, own: &Own) -> Duration {
        let retry = RETRY_INTERVAL.min(self.interval);
        let node = self.route.node(self.hash.as_bytes());
        let Some((node, live)) = node.and_then(|node| node.live().map(|live| (node, live))) else {
            return retry;
        };
        if self.refused_by.ptr_eq(&Rc::downgrade(&live)) {
            return retry;
        }
        match self.try_exchange(own, &live).await {
            Ok(lines) => {
                self.failures = 0;
                self.is_failure_logged = false;
                self.log(&lines);
            }
            Err(failure) => self.on_failure(&node, &live, failure),
        }
        // Random, so that the servers of a fleet do not write in step.
        self.interval.mul_f64(rand::rng().random_range(0.9..1.1))
    }

    fn on_failure(&mut self, node: &Node, live: &Rc<Live>, failure: Failure) {
        self.failures = self.failures.saturating_add(1);
        let (reason, advice) = match failure {
            Failure::Down(reason) => {
                self.context.counters.failures.add(1);
                // One failure is no news: a Redis that is not reachable is in the log already.
                if self.failures < DOWN_IN_A_ROW {
                    return;
                }
                (reason.to_string(), "")
            }
            Failure::Error(error) => {
                node.on_error(live, &error);
                match error.split(' ').next() {
                    Some("MOVED" | "ASK" | "TRYAGAIN") => return,
                    Some("NOPERM") => {
                        self.refused_by = Rc::downgrade(live);
                        (error, "; allow its user HSET, HGETALL and HDEL")
                    }
                    _ => (error, ""),
                }
            }
        };
        if !std::mem::replace(&mut self.is_failure_logged, true) {
            (self.context.log)(&format!(
                "warning: fleet: the settings of servers in the key `{}` of Redis at {} are not \
                 compared: {reason}{advice}",
                self.hash,
                live.address()
            ));
        }
    }

    /// Writes this server's entry and reads all; returns what to log.
    async fn try_exchange(&mut self, own: &Own, live: &Live) -> Result<Vec<String>, Failure> {
        let connection = self.context.dialer.open(live.address()).await?;
        self.context.counters.connections.add(1);
        let late = |_| Down::new(format_args!("no reply within {EXCHANGE_TIMEOUT:?}"));
        let exchanging = self.write_and_read(own, &connection);
        let replies = timeout(EXCHANGE_TIMEOUT, exchanging).await.map_err(late)??;
        let entries = entries(replies)?;
        let readings = self.open(own, entries).await;
        let comparison = self.peers.compare(own, readings, Instant::now(), self.interval);
        if !comparison.stale.is_empty() {
            let stale = comparison.stale.iter().map(String::as_bytes);
            let parts: Vec<_> =
                [&b"HDEL"[..], self.hash.as_bytes()].into_iter().chain(stale).collect();
            let removed = timeout(EXCHANGE_TIMEOUT, connection.command(&parts));
            if let Reply::Error(error) = removed.await.map_err(late)?? {
                // What was found is logged nevertheless.
                self.log(&comparison.lines);
                return Err(Failure::Error(error));
            }
        }
        Ok(comparison.lines)
    }

    async fn write_and_read(&self, own: &Own, connection: &Connection) -> Result<Vec<Reply>, Down> {
        let field = format!("{}/{}", own.node(), self.instance);
        let entry = own.encode(milliseconds(SystemTime::now()));
        let value = self.keys().seal_settings(&self.name(&field), &entry);
        let mut request = Vec::new();
        let hash = self.hash.as_bytes();
        command(&mut request, &[b"HSET", hash, field.as_bytes(), &value]);
        command(&mut request, &[b"HGETALL", hash]);
        connection.request(request, 2).await
    }

    /// Opens the entries of other servers.
    async fn open(&self, own: &Own, entries: Vec<(Bytes, Bytes)>) -> Vec<Reading> {
        let keys = self.keys();
        let mut readings = Vec::new();
        for (number, (field, value)) in entries.iter().enumerate() {
            if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1 {
                yield_now().await;
            }
            let Some(field) = name_of(field).filter(|field| !field.ends_with(&self.instance))
            else {
                continue;
            };
            if readings.len() == PEERS {
                break;
            }
            let entry = keys.open_settings(&self.name(field), value);
            let entry = entry.and_then(|entry| Entry::decode(&entry));
            readings.push(Reading::new(own, field.to_owned(), value, entry.as_ref()));
        }
        readings
    }

    /// Returns the name that an entry is sealed for. A field has no zero.
    fn name(&self, field: &str) -> Vec<u8> {
        [self.hash.as_bytes(), b"\0", field.as_bytes()].concat()
    }

    fn log(&self, lines: &[String]) {
        for line in lines {
            (self.context.log)(line);
        }
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the name of an entry, unless no server has written it. It is printed in log lines.
fn name_of(field: &[u8]) -> Option<&str> {
    let field = std::str::from_utf8(field).ok().filter(|field| field.len() <= FIELD_BYTES)?;
    (!field.contains(char::is_control)).then_some(field)
}

/// Returns names and values from the replies to the two commands.
fn entries(replies: Vec<Reply>) -> Result<Vec<(Bytes, Bytes)>, Failure> {
    let mut values = Vec::new();
    for reply in replies {
        match reply {
            Reply::Error(error) => return Err(Failure::Error(error)),
            Reply::Integer(_) => {}
            Reply::Array(parts) => values = parts,
            _ => return Err(Failure::Error("ERR the reply is no list of entries".to_owned())),
        }
    }
    let mut values = values.into_iter();
    let mut entries = Vec::new();
    while let (Some(Reply::Bulk(field)), Some(Reply::Bulk(value))) = (values.next(), values.next())
    {
        entries.push((field, value));
    }
    Ok(entries)
}
