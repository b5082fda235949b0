//! Removes sessions from one server, with proof of what that is worth.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

use super::config::LogLine;
use super::context::Context;
use super::stamp::{Stamp, stamp};
use crate::redis::{Connection, Down, Reply, command};

/// Removals that are sent together, and whose replicas are waited for together.
const UNITS: usize = 256;
/// Waits in a row in which too few replicas acknowledged, after which the waits become short.
const SHORTFALLS_IN_A_ROW: u32 = 3;
/// The shortest wait that the command allows; 0 would be no limit at all.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The removal of one key.
pub(super) struct Unit {
    pub(super) key: Vec<u8>,
    pub(super) answer: oneshot::Sender<Result<Removed, String>>,
}

/// The outcome of a removal.
pub(super) struct Removed {
    /// What was stored.
    pub(super) value: Option<Bytes>,
    /// The run of the server in which it was removed, if that is known.
    pub(super) stamp: Option<Stamp>,
    /// Whether as many replicas as required have acknowledged the removal.
    pub(super) is_acknowledged: bool,
}

/// Sends removals over one connection.
pub(super) struct Lane {
    units: mpsc::UnboundedSender<Unit>,
    connection: Connection,
}

impl Lane {
    /// Starts the lane's task, which ends with the lane.
    pub(super) fn start(connection: Connection, run_id: String, context: &Rc<Context>) -> Self {
        let (units, queue) = mpsc::unbounded_channel();
        let remover = Remover {
            connection: connection.clone(),
            run_id: run_id.into(),
            replicas: context.replicas,
            wait: (context.timeout / 2).max(SHORTEST_WAIT),
            log: context.log.clone(),
        };
        spawn_local(remover.run(queue));
        Self { units, connection }
    }

    /// Removes a key. The queue is bounded by the number of commands of the store.
    pub(super) fn send(&self, unit: Unit) {
        // If the connection has ended, the unit is dropped, which answers it.
        let _ = self.units.send(unit);
    }

    /// Ends the connection.
    pub(super) fn close(&self) {
        self.connection.close();
    }

    pub(super) async fn closed(&self) -> Down {
        self.connection.closed().await
    }
}

struct Remover {
    connection: Connection,
    /// Of the process at the other end of the connection.
    run_id: Rc<str>,
    replicas: u32,
    /// How long the server waits for replicas. Half of the timeout, so that the session is resumed
    /// without early data if it is in vain.
    wait: Duration,
    log: Arc<LogLine>,
}

impl Remover {
    fn log(&self, line: &str) {
        (self.log)(line);
    }

    async fn run(self, mut queue: mpsc::UnboundedReceiver<Unit>) {
        let mut shortfalls = 0_u32;
        let mut units = Vec::new();
        while queue.recv_many(&mut units, UNITS).await > 0 {
            // Their callers have timed out.
            units.retain(|unit: &Unit| !unit.answer.is_closed());
            if units.is_empty() {
                continue;
            }
            let wait = if shortfalls < SHORTFALLS_IN_A_ROW { self.wait } else { SHORTEST_WAIT };
            let sent = std::mem::take(&mut units);
            if self.replicas == 0 {
                let (connection, run_id) = (self.connection.clone(), self.run_id.clone());
                spawn_local(async move { remove(&connection, &run_id, sent, None).await });
                continue;
            }
            // One wait at a time: the server would do them one after the other, and meanwhile the
            // next removals gather, so that one wait serves them all.
            let required = Some((self.replicas, wait));
            match remove(&self.connection, &self.run_id, sent, required).await {
                Some(true) => {
                    if shortfalls >= SHORTFALLS_IN_A_ROW {
                        self.log(&format!(
                            "the required replicas ({}) acknowledge again that TLS sessions are \
                             removed",
                            self.replicas
                        ));
                    }
                    shortfalls = 0;
                }
                Some(false) => {
                    shortfalls = shortfalls.saturating_add(1);
                    if shortfalls == SHORTFALLS_IN_A_ROW {
                        self.log(&format!(
                            "warning: fewer replicas than required ({}) acknowledge that a TLS \
                             session was removed: sessions give no early data",
                            self.replicas
                        ));
                    }
                }
                None => {}
            }
        }
    }
}

/// Removes keys; returns whether the replicas acknowledged, if there was any reply.
async fn remove(
    connection: &Connection,
    run_id: &str,
    units: Vec<Unit>,
    required: Option<(u32, Duration)>,
) -> Option<bool> {
    let mut request = Vec::new();
    for unit in &units {
        command(&mut request, &[b"GETDEL", &unit.key]);
    }
    if let Some((replicas, wait)) = required {
        let (replicas, wait) = (replicas.to_string(), wait.as_millis().to_string());
        command(&mut request, &[b"WAIT", replicas.as_bytes(), wait.as_bytes()]);
    }
    // After the removals: if the server is still in the same run, it was when it did them.
    command(&mut request, &[b"INFO", b"replication"]);
    let count = units.len() + usize::from(required.is_some()) + 1;
    // Dropping the units answers them.
    let mut replies = connection.request(request, count).await.ok()?;
    let stamp = stamp(run_id, &replies.pop()?).ok().flatten();
    let is_acknowledged = match required {
        None => true,
        Some((replicas, _)) => match replies.pop()? {
            Reply::Integer(acknowledged) => acknowledged >= i64::from(replicas),
            _ => false,
        },
    };
    for (unit, reply) in units.into_iter().zip(replies) {
        let answer = match reply {
            Reply::Bulk(value) => Ok(Removed { value: Some(value), stamp, is_acknowledged }),
            Reply::Nil => Ok(Removed { value: None, stamp, is_acknowledged }),
            Reply::Error(error) => Err(error),
            _ => Err("ERR the reply to GETDEL is no string".to_owned()),
        };
        // No receiver: its caller has timed out meanwhile.
        let _ = unit.answer.send(answer);
    }
    Some(is_acknowledged)
}
