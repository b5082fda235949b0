//! The part of a QUIC handshake that ran while its connection was parked.
//!
//! The ClientHello is answered before the transport has the connection. When the transport passes
//! the same bytes on, they are compared and skipped, and only after the last one the answer is
//! written. So the transport sees the same session as if the answer had been made at that moment.

use std::sync::{Arc, Mutex, PoisonError};

use quinn_proto::{TransportError, TransportErrorCode};
use rustls::quic;

use crate::contained::contained;
use crate::tls::{Fetched, Parking};

/// What a session that was parked still has to do.
pub(super) struct ParkedSession {
    parking: Arc<Parking>,
    /// Sessions not looked up yet: rustls does that in the second ClientHello, if there is one.
    pub(super) fetched: Fetched,
    /// Whether a ClientHello has to be answered on another thread.
    is_slow: bool,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// The transport passes the ClientHello on, of which it has passed `read` bytes.
    Repeated { hello: Vec<u8>, read: usize, outcome: Result<(), TransportError> },
    /// HelloRetryRequest was sent: a second ClientHello follows.
    SecondHello,
    /// The second ClientHello is being answered on another thread.
    Away(Arc<Answer>),
}

/// Where another thread puts a connection whose ClientHello it has answered.
#[derive(Default)]
pub(super) struct Answer(Mutex<Option<Answered>>);

/// A connection, and the outcome of the ClientHello that it was given.
pub(super) type Answered = (Box<quic::Connection>, Result<(), TransportError>);

/// Bytes behind a ClientHello that was skipped, and its outcome.
pub(super) struct Skipped<'a> {
    pub(super) rest: &'a [u8],
    pub(super) outcome: Result<(), TransportError>,
}

impl Answer {
    pub(super) fn take(&self) -> Option<Answered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ParkedSession {
    pub(super) fn new(
        parking: Arc<Parking>,
        fetched: Fetched,
        is_slow: bool,
        hello: Vec<u8>,
        outcome: Result<(), TransportError>,
    ) -> Self {
        Self { parking, fetched, is_slow, stage: Stage::Repeated { hello, read: 0, outcome } }
    }

    pub(super) fn fail(&mut self, error: TransportError) {
        if let Stage::Repeated { outcome, .. } = &mut self.stage {
            *outcome = Err(error);
        }
    }

    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Whether the transport may see nothing of the answer yet.
    pub(super) fn is_silent(&self) -> bool {
        !matches!(self.stage, Stage::SecondHello)
    }

    /// Skips bytes of the ClientHello that the transport passes on. Returns the bytes behind it and
    /// the outcome, once it is complete.
    pub(super) fn skip<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<Option<Skipped<'a>>, TransportError> {
        let Stage::Repeated { hello, read, outcome } = &mut self.stage else {
            return Ok(Some(Skipped { rest: bytes, outcome: Ok(()) }));
        };
        let rest = &hello[*read..];
        let len = rest.len().min(bytes.len());
        if rest[..len] != bytes[..len] {
            return Err(TransportError {
                reason: "the ClientHello has changed".to_owned(),
                ..TransportErrorCode::PROTOCOL_VIOLATION.into()
            });
        }
        *read += len;
        if *read < hello.len() {
            return Ok(None);
        }
        let outcome = outcome.clone();
        self.stage = Stage::SecondHello;
        Ok(Some(Skipped { rest: &bytes[len..], outcome }))
    }

    /// Answers the second ClientHello on another thread. The transport takes the answer when the
    /// client's next packet arrives, at the latest after the client's probe timeout. Few clients need
    /// a second ClientHello: those whose first one has no key share of a common group.
    pub(super) fn answer_elsewhere(
        &mut self,
        mut tls: Box<quic::Connection>,
        hello: Vec<u8>,
        read: fn(&mut quic::Connection, &[u8]) -> Result<(), TransportError>,
    ) -> bool {
        let answer = Arc::new(Answer::default());
        let (fetched, place) = (std::mem::take(&mut self.fetched), answer.clone());
        self.stage = Stage::Away(answer);
        self.parking.run(move || {
            let (outcome, _) = fetched.provide(|| contained(|| read(&mut tls, &hello)));
            if let Some(outcome) = outcome {
                *place.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((tls, outcome));
            }
        })
    }
}
