//! One connection of a client.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use super::clients::Client;
use super::pool::{Answers, Job};
use super::shared::Shared;
use crate::signer::pipe::{Pipe, Progress};
use crate::signer::protocol::{ErrorCode, Message, Opcode, Operation, PADDED_BYTES};
use crate::signer::scheme::Scheme;

/// Time without a request after which a connection that drains reads no further ones. Requests
/// that were sent before the client could know are answered.
const QUIET: Duration = Duration::from_millis(100);
/// Maximum time for which a connection that drains reads requests.
const MAX_READING: Duration = Duration::from_millis(500);

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The reason why the signer closed a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("{0}; the connection is closed")]
    Protocol(#[from] crate::signer::protocol::FrameError),
    #[error("the client did not read its answers for {0:?}; see write_timeout in [limits]")]
    SlowReader(Duration),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Serves a client until it closes the connection, is idle or misbehaves, or the signer drains.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(
    pipe: Pipe<S>,
    client: &Client,
    shared: &Shared,
    drain: watch::Receiver<Option<Duration>>,
) -> Result<(), ConnectionError> {
    let (sender, answers) = unbounded_channel();
    let now = Instant::now();
    let connection = Connection {
        number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        pipe,
        client,
        shared,
        sender,
        in_flight: 0,
        is_reading: true,
        last_received: now,
        last_sent: now,
        draining_since: None,
    };
    connection.run(answers, drain).await
}

struct Connection<'a, S> {
    number: u64,
    pipe: Pipe<S>,
    client: &'a Client,
    shared: &'a Shared,
    sender: UnboundedSender<Answers>,
    /// Requests whose answers have not come from the pool.
    in_flight: usize,
    is_reading: bool,
    last_received: Instant,
    /// When the client last accepted bytes, or had nothing to accept.
    last_sent: Instant,
    draining_since: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite> Connection<'_, S> {
    async fn run(
        mut self,
        mut answers: UnboundedReceiver<Answers>,
        mut drain: watch::Receiver<Option<Duration>>,
    ) -> Result<(), ConnectionError> {
        loop {
            self.take_requests().await?;
            if !self.is_reading && self.in_flight == 0 && self.pipe.is_sent() {
                break;
            }
            let may_read = self.is_reading && self.has_capacity();
            let is_draining = self.draining_since.is_some();
            let deadline = self.deadline();
            tokio::select! {
                Some(batch) = answers.recv() => {
                    self.on_answers(&batch);
                    while let Ok(batch) = answers.try_recv() {
                        self.on_answers(&batch);
                    }
                }
                progress = self.pipe.progress(may_read) => match progress {
                    Ok(Progress::Received) => self.last_received = Instant::now(),
                    Ok(Progress::Sent) => self.last_sent = Instant::now(),
                    Ok(Progress::Closed) => return Ok(()),
                    // A client that ended without the end of its TLS stream.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                    Err(error) => return Err(error.into()),
                },
                _ = drain.wait_for(Option::is_some), if !is_draining => {
                    self.draining_since = Some(Instant::now());
                }
                () = sleep_until(deadline.into()) => self.on_deadline()?,
            }
        }
        let limit = self.shared.limits.write_timeout.0;
        // The client may not wait for the end of the stream.
        let _ = timeout(limit, self.pipe.close()).await;
        Ok(())
    }

    /// Returns whether a further request may be read: those without an answer that is sent are
    /// below the limit.
    fn has_capacity(&mut self) -> bool {
        let unsent = self.pipe.out().len().div_ceil(PADDED_BYTES);
        self.in_flight + unsent < self.shared.limits.requests_per_connection
    }

    async fn take_requests(&mut self) -> Result<(), ConnectionError> {
        while self.is_reading && self.has_capacity() {
            match self.pipe.poll_message() {
                Ok(Some(message)) => self.on_message(message),
                Ok(None) => break,
                Err(error) => {
                    self.refuse(
                        error.id(),
                        match error {
                            crate::signer::protocol::FrameError::Version(..) => {
                                ErrorCode::VERSION_MISMATCH
                            }
                            crate::signer::protocol::FrameError::TooLong { .. } => {
                                ErrorCode::FORMAT
                            }
                        },
                    );
                    // The client learns why, if it reads.
                    let limit = self.shared.limits.write_timeout.0;
                    let send = async {
                        while !self.pipe.is_sent() {
                            self.pipe.progress(false).await?;
                        }
                        self.pipe.close().await
                    };
                    let _ = timeout(limit, send).await;
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    fn on_message(&mut self, message: Message) {
        let Message { id, operation } = message;
        let Ok(operation) = operation else {
            self.shared.metrics.on_request();
            return self.refuse(id, ErrorCode::FORMAT);
        };
        if operation.opcode == Opcode::PING {
            self.shared.metrics.on_ping();
            return self.answer(id, &Operation::new(Opcode::PONG, operation.payload));
        }
        self.shared.metrics.on_request();
        match self.job(id, operation) {
            Ok(job) => {
                if self.shared.queue.push(job, self.shared.limits.requests) {
                    self.in_flight += 1;
                } else {
                    self.shared.metrics.on_overload();
                    self.refuse(id, ErrorCode::INTERNAL);
                }
            }
            Err(code) => self.refuse(id, code),
        }
    }

    /// Returns what to sign, or the reason why it is refused.
    fn job(&self, id: u32, operation: Operation) -> Result<Job, ErrorCode> {
        let opcode = operation.opcode;
        if matches!(opcode, Opcode::PONG | Opcode::RESPONSE | Opcode::ERROR) {
            return Err(ErrorCode::UNEXPECTED_OPCODE);
        }
        let scheme = Scheme::of_opcode(opcode).ok_or(ErrorCode::BAD_OPCODE)?;
        let ski = operation.ski.ok_or(ErrorCode::KEY_NOT_FOUND)?;
        // A key that the client may not use does not exist for it.
        let key = self.client.key(&ski).ok_or(ErrorCode::KEY_NOT_FOUND)?.clone();
        let is_usable = key.source().public_key().kind().supports(scheme)
            && operation.payload.len() == scheme.hash().digest_bytes();
        if !is_usable {
            return Err(ErrorCode::CRYPTO);
        }
        Ok(Job {
            connection: self.number,
            answers: self.sender.clone(),
            id,
            key,
            scheme,
            digest: operation.payload,
        })
    }

    fn refuse(&mut self, id: u32, code: ErrorCode) {
        self.shared.metrics.on_refusal(code);
        self.answer(id, &Operation::error(code));
    }

    fn answer(&mut self, id: u32, operation: &Operation) {
        self.before_sending();
        if operation.encode(id, self.pipe.out()).is_err() {
            // Only the answer to a ping can be long, and it is as long as the ping.
            let error = Operation::error(ErrorCode::FORMAT);
            let encoded = error.encode(id, self.pipe.out());
            encoded.expect("invariant: an error is a short message");
        }
    }

    fn on_answers(&mut self, answers: &Answers) {
        self.before_sending();
        self.in_flight -= answers.count;
        self.pipe.out().extend_from_slice(&answers.bytes);
        if let Some(error) = self.shared.metrics.take_error() {
            self.shared.log.line(&format!("warning: key {error}"));
        }
    }

    /// The time to accept bytes begins when there are some.
    fn before_sending(&mut self) {
        if self.pipe.is_sent() {
            self.last_sent = Instant::now();
        }
    }

    /// Returns when to look at the connection again if nothing happens.
    fn deadline(&mut self) -> Instant {
        let limits = &self.shared.limits;
        let mut deadline = if !self.pipe.is_sent() {
            self.last_sent + limits.write_timeout.0
        } else if self.in_flight > 0 {
            // The key has its own timeout.
            Instant::now() + limits.idle_timeout.0
        } else {
            self.last_received + limits.idle_timeout.0
        };
        if let Some(reads_until) = self.reads_until().filter(|_| self.is_reading) {
            deadline = deadline.min(reads_until);
        }
        deadline
    }

    /// Returns until when a connection that drains reads requests.
    fn reads_until(&self) -> Option<Instant> {
        let since = self.draining_since?;
        Some((self.last_received.max(since) + QUIET).min(since + MAX_READING))
    }

    fn on_deadline(&mut self) -> Result<(), ConnectionError> {
        let now = Instant::now();
        let limits = &self.shared.limits;
        if self.reads_until().is_some_and(|until| now >= until) {
            self.is_reading = false;
        }
        if !self.pipe.is_sent() && now >= self.last_sent + limits.write_timeout.0 {
            self.shared.metrics.on_slow_reader();
            return Err(ConnectionError::SlowReader(limits.write_timeout.0));
        }
        let is_idle = self.pipe.is_sent() && self.in_flight == 0;
        if is_idle && now >= self.last_received + limits.idle_timeout.0 {
            self.is_reading = false;
        }
        Ok(())
    }
}
