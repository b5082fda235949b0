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
    /// to write; or the client has ended, or has sent something else than TLS.
    pub(super) async fn answer<T: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        io: &mut T,
        parking: &Arc<Parking>,
        limits: &Limits,
        stats: &Arc<Stats>,
    ) -> Result<Self, Unanswered> {
        let mut fetched = Fetched::default();
        let mut is_first = true;
        // No record reaches TLS elsewhere before the ClientHello is answered: any record might
        // complete it, and so begin a signature.
        while !self.is_answered() {
            if !poll_fn(|cx| self.poll_records(io, cx)).await.map_err(|_| Unanswered::Closed)? {
                return Ok(self);
            }
            let hello = self.flight.held.client_hello().map(HelloSummary::new);
            // A ClientHello in several records is treated as if its key were slow.
            let is_slow = parking.has_slow_keys()
                && hello.as_ref().is_none_or(|hello| parking.signs_slowly(hello));
            let hello = hello.filter(|hello| is_first && parking.has_to_fetch(hello));
            is_first = false;
            let is_full = stats.tcp_handshakes_parked_now.value() >= limits.parked_handshakes();
            if is_full && (is_slow || hello.is_some()) {
                stats.parked_handshakes_refused.add(1);
                if is_slow {
                    return Err(Unanswered::Closed);
                }
            }
            let parked = (is_slow || hello.is_some()).then(|| ParkedGuard::new(stats));
            if let Some(hello) = hello.filter(|_| !is_full) {
                fetched = fetch(parking, &hello).await;
            }
            let records = self.flight.held.take_ready();
            let (tls, read, rest) = if is_slow {
                let answered = elsewhere(parking, self.tls, records, fetched).await;
                answered.ok_or_else(|| {
                    stats.signing_threads_exhausted.add(1);
                    Unanswered::Closed
                })?
            } else {
                process(self.tls, &records, fetched).ok_or(Unanswered::Closed)?
            };
            drop(parked);
            fetched = rest;
            self.tls = tls;
            if let Err(error) = read {
                return Err(Unanswered::Refused(self, error));
            }
            // A HelloRetryRequest, if anything; the answer leaves with the first response.
            if !self.is_answered() {
                poll_fn(|cx| self.poll_flush(io, cx)).await.map_err(|_| Unanswered::Closed)?;
            }
        }
        Ok(self)
    }

    /// Reads until there is a whole record with a ClientHello, or a part of another one. Ready with
    /// `false` if the client has ended, or does not use TLS.
    fn poll_records<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let FirstFlight { held, first } = &mut *self.flight;
        let mut bytes = [0; READ_BYTES];
        loop {
            if first.clear_text().is_some() {
                return Poll::Ready(Ok(false));
            }
            if held.ready_bytes() > 0 {
                return Poll::Ready(Ok(true));
            }
            let mut buffer = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *io).poll_read(cx, &mut buffer))?;
            let read = buffer.filled();
            if read.is_empty() {
                held.pass_through();
                return Poll::Ready(Ok(false));
            }
            self.offer.read(read);
            first.read(read);
            held.read(read);
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
        stats.tcp_handshakes_parked_now.add(1);
        Self(stats)
    }
}

impl Drop for ParkedGuard<'_> {
    fn drop(&mut self) {
        self.0.tcp_handshakes_parked_now.subtract(1);
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
        // The connection has ended meanwhile.
        if done.is_closed() {
            return;
        }
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
