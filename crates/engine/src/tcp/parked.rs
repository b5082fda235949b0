//! The answer to a ClientHello that may have to wait: for a shared session, or for the signature of
//! a slow key.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::{HandshakeKind, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::blocking_io::{FirstFlight, PolledWrite};
use crate::contained::contained;
use crate::limits::Limits;
use crate::stats::Stats;
use crate::tls::{Fetched, HelloSummary, Parking, RecordedOffer};

const READ_BYTES: usize = 4 << 10;
/// Records before a ClientHello, such as the change_cipher_spec before the second one. A peer that
/// sends more has no ClientHello to answer.
const BEFORE_HELLO_BYTES: usize = 64;

/// A server's side of a handshake, until the first ClientHello is answered.
pub(super) struct Beginning {
    pub(super) tls: Box<ServerConnection>,
    pub(super) offer: RecordedOffer,
    pub(super) flight: Box<FirstFlight>,
}

/// Why there is no answer.
pub(super) enum Unanswered {
    /// The socket failed, or there are too many handshakes.
    Closed,
    /// TLS refuses what the client sent, and may have an alert for it.
    Refused(Beginning, rustls::Error),
}

impl Beginning {
    /// Reads the ClientHello, waits for what it needs, and answers it. On return, TLS has the answer
    /// to write, or the bytes are no ClientHello and are left for it to refuse.
    pub(super) async fn answer<T: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        io: &mut T,
        parking: &Arc<Parking>,
        limits: &Limits,
        stats: &Arc<Stats>,
    ) -> Result<Self, Unanswered> {
        let mut fetched = Fetched::default();
        let mut is_first = true;
        loop {
            if !poll_fn(|cx| self.poll_hello(io, cx)).await.map_err(|_| Unanswered::Closed)? {
                return Ok(self);
            }
            let hello = self.flight.held.client_hello().map(HelloSummary::new);
            // A ClientHello in several records is answered as if its key were slow.
            let is_slow = hello.as_ref().is_none_or(|hello| parking.signs_slowly(hello));
            if stats.handshakes_parked_now.value() >= limits.parked_handshakes() {
                stats.parked_handshakes_refused.add(1);
                return Err(Unanswered::Closed);
            }
            let parked = ParkedGuard::new(stats);
            if let Some(hello) = hello.filter(|_| is_first) {
                fetched = fetch(parking, &hello).await;
            }
            is_first = false;
            let records = self.flight.held.take_ready();
            let tls = self.tls;
            let (tls, read, rest) = if is_slow && parking.has_slow_keys() {
                let answered = elsewhere(parking, tls, records, fetched).await;
                answered.ok_or_else(|| {
                    stats.parked_handshakes_refused.add(1);
                    Unanswered::Closed
                })?
            } else {
                process(tls, &records, fetched).ok_or(Unanswered::Closed)?
            };
            drop(parked);
            fetched = rest;
            self.tls = tls;
            if let Err(error) = read {
                return Err(Unanswered::Refused(self, error));
            }
            if self.is_answered() {
                return Ok(self);
            }
            // HelloRetryRequest, if anything.
            poll_fn(|cx| self.poll_flush(io, cx)).await.map_err(|_| Unanswered::Closed)?;
        }
    }

    /// Reads until there is a ClientHello, or at least a part of one. Ready with `false` if there is
    /// something else.
    fn poll_hello<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let held = &mut self.flight.held;
        let mut bytes = [0; READ_BYTES];
        loop {
            if held.has_client_hello() {
                return Poll::Ready(Ok(true));
            }
            if held.ready_bytes() > BEFORE_HELLO_BYTES {
                return Poll::Ready(Ok(false));
            }
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *io).poll_read(cx, &mut buffer))?;
            let read = buffer.filled();
            if read.is_empty() {
                held.pass_through();
                return Poll::Ready(Ok(false));
            }
            self.offer.read(read);
            self.flight.first.read(read);
            held.read(read);
            if self.flight.first.clear_text().is_some() {
                return Poll::Ready(Ok(false));
            }
        }
    }

    fn poll_flush<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut PolledWrite { io, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether a ClientHello was answered by something other than a HelloRetryRequest.
    fn is_answered(&self) -> bool {
        match self.tls.handshake_kind() {
            Some(HandshakeKind::FullWithHelloRetryRequest) => {
                self.tls.negotiated_key_exchange_group().is_some()
            }
            kind => kind.is_some(),
        }
    }
}

/// Counts a parked handshake until dropped.
struct ParkedGuard<'a>(&'a Stats);

impl<'a> ParkedGuard<'a> {
    fn new(stats: &'a Stats) -> Self {
        stats.handshakes_parked.add(1);
        stats.handshakes_parked_now.add(1);
        Self(stats)
    }
}

impl Drop for ParkedGuard<'_> {
    fn drop(&mut self) {
        self.0.handshakes_parked_now.subtract(1);
    }
}

async fn fetch(parking: &Parking, hello: &HelloSummary) -> Fetched {
    let (done, fetched) = oneshot::channel();
    parking.fetch(hello, move |fetched| {
        // The connection may have ended meanwhile.
        let _ = done.send(fetched);
    });
    // A store that drops the request has found nothing.
    fetched.await.unwrap_or_default()
}

type Processed = (Box<ServerConnection>, Result<(), rustls::Error>, Fetched);

async fn elsewhere(
    parking: &Parking,
    tls: Box<ServerConnection>,
    records: Vec<u8>,
    fetched: Fetched,
) -> Option<Processed> {
    let (done, processed) = oneshot::channel();
    let is_running = parking.run(move || {
        let _ = done.send(process(tls, &records, fetched));
    });
    if is_running { processed.await.ok().flatten() } else { None }
}

/// Runs TLS on records. Returns `None` if it panics.
fn process(mut tls: Box<ServerConnection>, records: &[u8], fetched: Fetched) -> Option<Processed> {
    let mut rest = records;
    let (read, fetched) = fetched.provide(|| {
        contained(|| {
            while !rest.is_empty() {
                // Reading from memory fails only if TLS buffers too much of what it cannot process.
                tls.read_tls(&mut rest)
                    .map_err(|error| rustls::Error::General(error.to_string()))?;
                tls.process_new_packets()?;
            }
            Ok(())
        })
    });
    Some((tls, read?, fetched))
}
