//! One connection to a signer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use super::request::{Reply, Request};
use crate::signer::error::SignError;
use crate::signer::pipe::{Pipe, Progress};
use crate::signer::protocol::{Message, Opcode, Operation};

/// Time between searches for requests whose time is over.
const SWEEP: Duration = Duration::from_millis(100);
/// Bytes to send above which no further request is taken.
const OUT_BYTES: usize = 256 << 10;
/// What the data of a ping is.
const PING_DATA: &[u8] = b"pronghorn";

/// Settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) ping_timeout: Duration,
    pub(super) ping_interval: Duration,
    /// Maximum number of requests that wait, including those that their callers have abandoned.
    pub(super) waiting: usize,
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client was dropped.
    Stopped,
    /// It failed, or the signer closed it.
    Failed(String),
}

/// Sends a ping as the first request, and waits for its answer.
pub(super) async fn greet<S: AsyncRead + AsyncWrite>(pipe: &mut Pipe<S>) -> Result<(), String> {
    let ping = Operation::new(Opcode::PING, PING_DATA);
    ping.encode(0, pipe.out()).map_err(|error| error.to_string())?;
    loop {
        if pipe.progress(true).await.map_err(|error| error.to_string())? == Progress::Closed {
            return Err("the signer closed the connection".to_owned());
        }
        if let Some(message) = pipe.poll_message().map_err(|error| error.to_string())? {
            return match message.operation {
                Ok(answer) if answer.opcode == Opcode::PONG && message.id == 0 => Ok(()),
                other => Err(format!("unexpected answer {other:?}")),
            };
        }
    }
}

struct Waiting {
    reply: Reply,
    sent: Instant,
    deadline: Instant,
}

/// A connection whose requests are answered in any order.
pub(super) struct Connection<S> {
    pipe: Pipe<S>,
    settings: Settings,
    waiting: HashMap<u32, Waiting>,
    next_id: u32,
    last_received: Instant,
    /// ID and time of the ping that has no answer yet.
    ping: Option<(u32, Instant)>,
    next_ping: Instant,
    next_sweep: Instant,
}

impl<S: AsyncRead + AsyncWrite> Connection<S> {
    pub(super) fn new(pipe: Pipe<S>, settings: Settings) -> Self {
        let now = Instant::now();
        let next_ping = now + settings.ping_interval;
        Self {
            pipe,
            settings,
            waiting: HashMap::new(),
            next_id: 1,
            last_received: now,
            ping: None,
            next_ping,
            next_sweep: next_ping,
        }
    }

    /// Sends requests and hands out their answers until the connection ends. Requests without an
    /// answer fail then.
    pub(super) async fn run(mut self, requests: &mut mpsc::Receiver<Request>) -> End {
        let end = self.serve(requests).await;
        let reason = match &end {
            End::Stopped => "the client has ended",
            End::Failed(reason) => reason,
        };
        for (_, waiting) in self.waiting.drain() {
            waiting.reply.send(Err(SignError::Unavailable(reason.to_owned())));
        }
        if matches!(end, End::Stopped) {
            // The signer sees an orderly end; nothing depends on it.
            let _ = self.pipe.close().await;
        }
        end
    }

    async fn serve(&mut self, requests: &mut mpsc::Receiver<Request>) -> End {
        loop {
            let takes = self.pipe.out().len() < OUT_BYTES;
            tokio::select! {
                request = requests.recv(), if takes => {
                    let Some(request) = request else { return End::Stopped };
                    self.send(request);
                    while self.pipe.out().len() < OUT_BYTES {
                        let Ok(request) = requests.try_recv() else { break };
                        self.send(request);
                    }
                }
                progress = self.pipe.progress(true) => match progress {
                    Ok(Progress::Sent) => {}
                    Ok(Progress::Received) => if let Err(reason) = self.receive() {
                        return End::Failed(reason);
                    },
                    Ok(Progress::Closed) => {
                        return End::Failed("the signer closed the connection".to_owned());
                    }
                    Err(error) => return End::Failed(error.to_string()),
                },
                () = sleep_until(self.next_sweep.into()) => if let Err(reason) = self.sweep() {
                    return End::Failed(reason);
                },
            }
        }
    }

    fn send(&mut self, request: Request) {
        let now = Instant::now();
        let Request { operation, reply, deadline } = request;
        if now >= deadline {
            return;
        }
        if self.waiting.len() >= self.settings.waiting {
            return reply.send(Err(SignError::Busy(self.settings.waiting)));
        }
        let id = self.next_id();
        if let Err(error) = operation.encode(id, self.pipe.out()) {
            return reply.send(Err(SignError::Failed(error.to_string())));
        }
        self.waiting.insert(id, Waiting { reply, sent: now, deadline });
        self.next_sweep = self.next_sweep.min(now + SWEEP);
    }

    /// Returns an ID that no request uses.
    fn next_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = id.wrapping_add(1);
            if !self.waiting.contains_key(&id) && self.ping.is_none_or(|(ping, _)| ping != id) {
                return id;
            }
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        self.last_received = Instant::now();
        while let Some(message) = self.pipe.poll_message().map_err(|error| error.to_string())? {
            self.on_message(message);
        }
        Ok(())
    }

    fn on_message(&mut self, message: Message) {
        if self.ping.is_some_and(|(id, _)| id == message.id) {
            self.ping = None;
            return;
        }
        // Others are answers to requests whose time is over.
        let Some(waiting) = self.waiting.remove(&message.id) else { return };
        waiting.reply.send(match message.operation {
            Ok(answer) if answer.opcode == Opcode::RESPONSE => Ok(answer.payload),
            Ok(answer) => Err(match answer.error_code() {
                Some(code) => SignError::Refused(code),
                None => SignError::Failed(format!("unexpected answer {}", answer.opcode)),
            }),
            Err(error) => Err(SignError::Failed(format!("malformed answer: {error}"))),
        });
    }

    /// Forgets requests whose time is over, and pings.
    fn sweep(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let last_received = self.last_received;
        let mut is_silent = false;
        self.waiting.retain(|_, waiting| {
            let is_over = now >= waiting.deadline;
            is_silent |= is_over && waiting.sent > last_received;
            !is_over
        });
        match self.ping {
            Some((_, sent)) if now >= sent + self.settings.ping_timeout => {
                return Err(format!("no answer to a ping within {:?}", self.settings.ping_timeout));
            }
            None if is_silent || now >= self.next_ping => {
                let id = self.next_id();
                let ping = Operation::new(Opcode::PING, PING_DATA);
                ping.encode(id, self.pipe.out()).map_err(|error| error.to_string())?;
                self.ping = Some((id, now));
                self.next_ping = now + self.settings.ping_interval;
            }
            Some(_) | None => {}
        }
        let is_idle = self.waiting.is_empty() && self.ping.is_none();
        self.next_sweep = if is_idle { self.next_ping } else { now + SWEEP };
        Ok(())
    }
}
