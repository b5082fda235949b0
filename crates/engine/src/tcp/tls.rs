//! TLS on a stream, with early data in both directions.
//!
//! A connection that receives or sends early data is returned before its handshake is done; reading
//! from it completes the handshake. It must be read and written with the waker of one task, as h2
//! and hyper do.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::PeerEnd;
use super::blocking_io::{FirstFlight, InspectedRead, PolledRead, PolledWrite};
use super::clear_text::ClearText;
use super::parked::{Beginning, Unanswered};
use crate::handshake_signal::HandshakeSignal;
use crate::limits::Limits;
use crate::stats::Stats;
use crate::tls::{
    ClientCertificate, ListenerTls, Negotiated, RecordedOffer, ServerHandshake, TlsParameters,
    TlsSummary, clear_request_note, is_signing_failure,
};

/// Maximum early data that a client sends, and keeps a copy of until it knows that the server
/// accepted it. A server may allow less.
const EARLY_DATA_BYTES: usize = 16 << 10;
/// Maximum content of a record.
const RECORD_BYTES: usize = 16 << 10;
/// A record with the fatal alert `internal_error` (RFC 8446, section 6.2), in clear: a client that has
/// not received a ServerHello reads it.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
/// Content of a record that fits into one segment, with the options and headers of any path. A
/// record can be decrypted only when it is complete, so a large one delays its first bytes by a
/// round trip while the congestion window is small.
const SEGMENT_BYTES: usize = 1_370;
/// Bytes sent in single-segment records when a connection begins to send: more than the initial
/// window plus its growth in one round trip. Counting restarts after [`IDLE_RESET`], as the
/// kernel's window does after a retransmission timeout, of which that is the shortest.
const SMALL_RECORD_BYTES: u32 = 64 << 10;
const IDLE_RESET: Duration = Duration::from_millis(200);
/// Overhead of a record besides its content, rounded up.
const RECORD_OVERHEAD: usize = 64;
/// Records that are collected before they are written to the socket, unless there is a flush: one
/// system call writes them all.
const RECORDS_PER_WRITE: usize = 4;
/// Content of these records.
const COLLECTED_BYTES: usize = RECORDS_PER_WRITE * RECORD_BYTES;
/// Maximum number of pieces used from one vectored write.
const SLICES: usize = 16;

/// Progress of a connection's handshake, for tasks that do not read from it.
#[derive(Debug, Default)]
pub(crate) struct HandshakeProgress {
    summary: Cell<Option<TlsSummary>>,
    done_at: Cell<Option<Instant>>,
    failed: RefCell<Option<String>>,
    signal: Rc<HandshakeSignal>,
}

impl HandshakeProgress {
    /// Returns the summary; `None` until the handshake is done.
    pub(crate) fn summary(&self) -> Option<TlsSummary> {
        self.summary.get()
    }

    /// Returns when the handshake was done.
    pub(crate) fn done_at(&self) -> Option<Instant> {
        self.done_at.get()
    }

    /// Returns the error of a handshake that was not waited for.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.borrow().clone()
    }

    /// Returns the signal for what waits for the end of the handshake.
    pub(crate) fn signal(&self) -> &Rc<HandshakeSignal> {
        &self.signal
    }

    /// Ready when the handshake is done or has failed.
    pub(crate) fn poll_done(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.signal.poll_ended(cx).map(drop)
    }

    fn set_done(&self, summary: TlsSummary) {
        self.summary.set(Some(summary));
        self.done_at.set(Some(Instant::now()));
        self.signal.end(true);
    }

    /// Marks the handshake as failed.
    pub(crate) fn fail(&self, reason: &str) {
        if self.summary.get().is_none() {
            self.failed.borrow_mut().get_or_insert_with(|| reason.to_owned());
            self.signal.end(false);
        }
    }
}

/// The rustls connection is boxed: a future that moves it to another one would reserve its size
/// more than once.
enum Side {
    Server {
        tls: Box<ServerConnection>,
        offer: RecordedOffer,
        /// Present until the handshake is done.
        beginning: Option<Box<FirstFlight>>,
        takes_early_data: bool,
        decided: bool,
        early_is_read: bool,
        stats: Arc<Stats>,
        began: Instant,
    },
    Client {
        tls: Box<ClientConnection>,
        early: Option<Vec<u8>>,
    },
}

/// A TLS connection on `T`.
pub(crate) struct TlsStream<T> {
    io: T,
    side: Side,
    progress: Rc<HandshakeProgress>,
    /// A writer that waits for the end of the handshake.
    writer: Option<Waker>,
    /// Bytes accepted for writing since the socket had accepted everything.
    collected: usize,
    /// Bytes accepted since the connection began to send or paused, and when data was last sent.
    taken: u32,
    sent_at: Option<Instant>,
    /// Whether there was a flush: the next bytes may be the head of a response.
    begins: bool,
    closed: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> TlsStream<T> {
    /// Does the server's handshake, or as much of it as is needed to answer early data. A
    /// clear-text client is returned as the error, with its request.
    pub(super) async fn accept(
        mut io: T,
        listener: ListenerTls,
        limits: &Limits,
        stats: Arc<Stats>,
    ) -> Result<Self, Option<(Self, ClearText)>> {
        let began = Instant::now();
        let ListenerTls { config, parking } = listener;
        let takes_early_data = config.max_early_data_size > 0;
        clear_request_note();
        let mut tls = Box::new(ServerConnection::new(config).map_err(|_| None)?);
        tls.set_buffer_limit(Some(COLLECTED_BYTES + RECORDS_PER_WRITE * RECORD_OVERHEAD));
        let mut beginning =
            Beginning { tls, offer: RecordedOffer::default(), flight: Box::default() };
        let mut refusal = None;
        if let Some(parking) = parking {
            // Boxed, since most listeners have no such handshakes.
            beginning = match Box::pin(beginning.answer(&mut io, &parking, limits, &stats)).await {
                Ok(answered) => answered,
                Err(Unanswered::Closed) => return Err(None),
                Err(Unanswered::Refused(beginning, error)) => {
                    refusal = Some(error);
                    beginning
                }
            };
        }
        let Beginning { tls, offer, flight } = beginning;
        let mut stream = Self::new(
            io,
            Side::Server {
                tls,
                offer,
                beginning: Some(flight),
                takes_early_data,
                decided: false,
                early_is_read: false,
                stats,
                began,
            },
        );
        let handshake = poll_fn(|cx| {
            if let Some(error) = refusal.take() {
                return Poll::Ready(Err(stream.refuse(cx, error)));
            }
            stream.side.inspect_handshake();
            stream.poll_handshake(cx)
        });
        match handshake.await {
            Ok(()) => Ok(stream),
            Err(_) => Err(stream.clear_text().map(|request| (stream, request))),
        }
    }

    /// Returns the stream below, for a clear-text client.
    pub(super) fn io(&mut self) -> &mut T {
        &mut self.io
    }

    /// Returns the request of a client that did not begin with TLS.
    fn clear_text(&self) -> Option<ClearText> {
        match &self.side {
            Side::Server { beginning, .. } => beginning.as_ref()?.first.clear_text(),
            Side::Client { .. } => None,
        }
    }

    /// Does the client's handshake. With `early_data`, and a session that allows it, it returns at
    /// once.
    pub(crate) async fn connect(
        io: T,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        early_data: bool,
    ) -> io::Result<Self> {
        let mut tls = Box::new(ClientConnection::new(config, name).map_err(io::Error::other)?);
        tls.set_buffer_limit(Some(COLLECTED_BYTES + RECORDS_PER_WRITE * RECORD_OVERHEAD));
        let early = (early_data && tls.early_data().is_some()).then(Vec::new);
        let mut stream = Self::new(io, Side::Client { tls, early });
        poll_fn(|cx| stream.poll_handshake(cx)).await?;
        Ok(stream)
    }

    fn new(io: T, side: Side) -> Self {
        Self {
            io,
            side,
            progress: Rc::default(),
            writer: None,
            collected: 0,
            taken: 0,
            sent_at: None,
            begins: true,
            closed: false,
        }
    }

    pub(crate) fn progress(&self) -> &Rc<HandshakeProgress> {
        &self.progress
    }

    pub(crate) fn alpn_protocol(&self) -> Option<&[u8]> {
        match &self.side {
            Side::Server { tls, .. } => tls.alpn_protocol(),
            Side::Client { tls, .. } => tls.alpn_protocol(),
        }
    }

    /// Returns the server name that a client requested (SNI); `None` before its first message, and
    /// on the client side.
    pub(crate) fn server_name(&self) -> Option<&str> {
        match &self.side {
            Side::Server { tls, .. } => tls.server_name(),
            Side::Client { .. } => None,
        }
    }

    /// Returns the client's certificate, once the handshake is done or early data has arrived.
    pub(crate) fn client_certificate(&self) -> Option<Arc<ClientCertificate>> {
        match &self.side {
            Side::Server { tls, .. } => ClientCertificate::new(tls.peer_certificates()?),
            Side::Client { .. } => None,
        }
    }

    /// Returns the TLS parameters, once the handshake is done or early data has arrived.
    pub(crate) fn parameters(&self) -> Option<TlsParameters> {
        match &self.side {
            Side::Server { tls, .. } => TlsParameters::new(tls),
            Side::Client { tls, .. } => TlsParameters::new(tls),
        }
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.progress.summary().is_some() {
                // Finished or tickets leave with the next write or flush: each separate packet
                // would be one of the few that the initial window allows.
                return Poll::Ready(Ok(()));
            }
            let flushed = self.poll_flush_tls(cx)?;
            if self.is_early() {
                return Poll::Ready(Ok(()));
            }
            if flushed.is_pending() && !self.side.wants_read() {
                return Poll::Pending;
            }
            if ready!(self.poll_read_tls(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Whether data may be transferred before the handshake is done.
    fn is_early(&mut self) -> bool {
        match &mut self.side {
            Side::Server { tls, .. } => tls.early_data().is_some(),
            Side::Client { early, .. } => early.is_some(),
        }
    }

    /// Reads and decrypts available data. Ready with 0 at the end of the stream.
    fn poll_read_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = match self.side.read_tls(&mut PolledRead { io: &mut self.io, cx }) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            read => read?,
        };
        if let Err(error) = self.side.process_new_packets() {
            return Poll::Ready(Err(self.refuse(cx, error)));
        }
        if read == 0 {
            self.progress.fail("the peer closed the connection");
        }
        self.side.inspect_handshake();
        if self.progress.summary().is_none() && !self.side.is_handshaking() {
            self.on_handshake_done()?;
        }
        Poll::Ready(Ok(read))
    }

    /// Ends the connection after an error of TLS.
    fn refuse(&mut self, cx: &mut Context<'_>, error: rustls::Error) -> io::Error {
        self.progress.fail(&error.to_string());
        // Sends an alert to the peer, if the socket accepts it at once and the peer speaks TLS.
        if is_signing_failure(&error) {
            // What TLS has queued ends before the signature, and has no alert.
            let _ = Pin::new(&mut self.io).poll_write(cx, &INTERNAL_ERROR);
        } else if self.clear_text().is_none() {
            let _ = self.poll_flush_tls(cx);
        }
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    fn on_handshake_done(&mut self) -> io::Result<()> {
        let summary = match &mut self.side {
            Side::Server { tls, offer, stats, began, .. } => {
                let accepted = tls.early_data().is_some();
                Negotiated::new(tls).count(stats);
                stats.tcp_handshake.observe(began.elapsed());
                TlsSummary::new(tls, offer.offered().then_some(accepted))
            }
            Side::Client { tls, early } => {
                let sent = early.take();
                let accepted = sent.is_some().then(|| tls.is_early_data_accepted());
                if let (Some(sent), Some(false)) = (sent, accepted) {
                    // The server discarded it unread, so it is not sent twice.
                    tls.writer().write_all(&sent)?;
                }
                TlsSummary::new(tls, accepted)
            }
        };
        self.progress.set_done(summary);
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
        Ok(())
    }

    fn poll_flush_tls(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.side.wants_write() {
            match self.side.write_tls(&mut PolledWrite { io: &mut self.io, cx }) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => self.sent_at = Some(Instant::now()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.collected = 0;
        Poll::Ready(Ok(()))
    }

    /// Writes as a client before the handshake is done: as much as early data allows; the rest
    /// waits.
    fn poll_write_early(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let Side::Client { tls, early: Some(sent) } = &mut self.side else {
            unreachable!("called by a client before the handshake is done")
        };
        let room = data.len().min(EARLY_DATA_BYTES - sent.len());
        let taken = match tls.early_data() {
            Some(mut early) if room > 0 => early.write(&data[..room])?,
            _ => 0,
        };
        if taken == 0 && !data.is_empty() {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        sent.extend_from_slice(&data[..taken]);
        // What the socket does not accept now is written at the next read or flush.
        let _ = self.poll_flush_tls(cx)?;
        Poll::Ready(Ok(taken))
    }

    /// Returns the maximum number of bytes for the next record.
    fn record_bytes(&mut self) -> usize {
        if std::mem::take(&mut self.begins) {
            if self.sent_at.is_some_and(|before| before.elapsed() > IDLE_RESET) {
                self.taken = 0;
            }
            return SEGMENT_BYTES;
        }
        let whole = (COLLECTED_BYTES - self.collected) / RECORD_BYTES * RECORD_BYTES;
        if self.taken < SMALL_RECORD_BYTES { SEGMENT_BYTES } else { whole }
    }

    /// Encrypts the bytes that `write` provides, up to the given number. They are written to the
    /// socket at a flush, which the protocol libraries do at the end of a message, or when enough
    /// has been collected.
    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mut rustls::Writer<'_>, usize) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            // There is always space for a whole record, so none is split.
            if self.collected > COLLECTED_BYTES - RECORD_BYTES {
                ready!(self.poll_flush_tls(cx))?;
            }
            let room = self.record_bytes();
            let taken = write(&mut self.side.writer(), room)?;
            self.collected += taken;
            self.taken = self.taken.saturating_add(taken as u32);
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            ready!(self.poll_flush_tls(cx))?;
        }
    }
}

/// Writes the first `room` bytes of `data`.
fn write_some(
    writer: &mut rustls::Writer<'_>,
    data: &[IoSlice<'_>],
    mut room: usize,
) -> io::Result<usize> {
    let mut some = [IoSlice::new(&[]); SLICES];
    let mut count = 0;
    for (slice, part) in data.iter().filter(|slice| !slice.is_empty()).zip(&mut some) {
        let taken = slice.len().min(room);
        *part = IoSlice::new(&slice[..taken]);
        count += 1;
        room -= taken;
        if room == 0 {
            break;
        }
    }
    writer.write_vectored(&some[..count])
}

impl<T: PeerEnd + AsyncRead + AsyncWrite + Unpin> PeerEnd for TlsStream<T> {
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_ended(cx)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) {
        // At most the rest of the early data, which has a limit, is buffered until the handshake is
        // done.
        while self.progress.summary().is_none() && self.is_early() {
            match self.poll_read_tls(cx) {
                Poll::Ready(Ok(1..)) => {}
                _ => return,
            }
        }
    }

    fn unacknowledged_bytes(&self) -> u64 {
        self.io.unacknowledged_bytes()
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.side.read(buffer)? {
                return Poll::Ready(Ok(()));
            }
            if !this.side.wants_read() {
                ready!(this.poll_flush_tls(cx))?;
            }
            let read = this.poll_read_tls(cx)?;
            if read.is_pending() {
                // Flushed only now: replies to the data just read share packets, such as tickets,
                // answers to key updates, and data that a client sends again.
                let _ = this.poll_flush_tls(cx)?;
                return Poll::Pending;
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if matches!(this.side, Side::Client { early: Some(_), .. }) {
            return this.poll_write_early(cx, data);
        }
        this.poll_write_with(cx, |writer, room| writer.write(&data[..data.len().min(room)]))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Some(first) = data.iter().find(|slice| !slice.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        if matches!(this.side, Side::Client { early: Some(_), .. }) {
            return this.poll_write_early(cx, first);
        }
        this.poll_write_with(cx, |writer, room| write_some(writer, data, room))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_flush_tls(cx))?;
        this.begins = true;
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.closed, true) {
            this.side.send_close_notify();
        }
        ready!(this.poll_flush_tls(cx))?;
        Pin::new(&mut this.io).poll_shutdown(cx)
    }
}

impl<T> Drop for TlsStream<T> {
    fn drop(&mut self) {
        self.progress.fail("the connection was closed");
    }
}

/// Operations that rustls's client and server connections share.
impl Side {
    /// Inspects the outcome of resumption and early data, until it is decided.
    fn inspect_handshake(&mut self) {
        if let Self::Server {
            tls, offer, takes_early_data, decided: decided @ false, stats, ..
        } = self
        {
            let accepted = tls.early_data().is_some();
            if let Some(handshake) =
                ServerHandshake::new(tls, offer.offered(), accepted, *takes_early_data)
            {
                *decided = true;
                handshake.count(&stats.tcp_resumed, stats);
            }
        }
    }

    /// Reads decrypted data into `buffer`. Returns whether there was data or the end.
    ///
    /// Callers pass large uninitialized buffers, so only the bytes read are written to them.
    fn read(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<bool> {
        let mut reader = match self {
            Self::Server { tls, early_is_read, .. } => {
                if !*early_is_read && let Some(mut early) = tls.early_data() {
                    let count = early.read(buffer.initialize_unfilled())?;
                    buffer.advance(count);
                    if count > 0 {
                        return Ok(true);
                    }
                }
                *early_is_read = !tls.is_handshaking();
                tls.reader()
            }
            Self::Client { tls, .. } => tls.reader(),
        };
        let before = buffer.remaining();
        while buffer.remaining() > 0 {
            let count = match reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(buffer.remaining() < before);
                }
                // The next read returns the error again.
                Err(_) | Ok([]) if buffer.remaining() < before => break,
                Ok([]) => break,
                chunk => {
                    let chunk = chunk?;
                    let count = chunk.len().min(buffer.remaining());
                    buffer.put_slice(&chunk[..count]);
                    count
                }
            };
            reader.consume(count);
        }
        Ok(true)
    }

    fn read_tls<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut PolledRead<'_, '_, T>,
    ) -> io::Result<usize> {
        match self {
            Self::Server { tls, offer, beginning: Some(beginning), .. }
                if tls.is_handshaking() || !beginning.held.is_empty() =>
            {
                tls.read_tls(&mut InspectedRead { io, offer, beginning })
            }
            Self::Server { tls, beginning, .. } => {
                *beginning = None;
                tls.read_tls(io)
            }
            Self::Client { tls, .. } => tls.read_tls(io),
        }
    }

    fn write_tls(&mut self, io: &mut dyn Write) -> io::Result<usize> {
        match self {
            Self::Server { tls, .. } => tls.write_tls(io),
            Self::Client { tls, .. } => tls.write_tls(io),
        }
    }

    fn process_new_packets(&mut self) -> Result<rustls::IoState, rustls::Error> {
        match self {
            Self::Server { tls, .. } => tls.process_new_packets(),
            Self::Client { tls, .. } => tls.process_new_packets(),
        }
    }

    fn writer(&mut self) -> rustls::Writer<'_> {
        match self {
            Self::Server { tls, .. } => tls.writer(),
            Self::Client { tls, .. } => tls.writer(),
        }
    }

    fn common(&self) -> &rustls::CommonState {
        match self {
            Self::Server { tls, .. } => tls,
            Self::Client { tls, .. } => tls,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.common().is_handshaking()
    }

    fn wants_read(&self) -> bool {
        self.common().wants_read()
    }

    fn wants_write(&self) -> bool {
        self.common().wants_write()
    }

    fn send_close_notify(&mut self) {
        match self {
            Self::Server { tls, .. } => tls.send_close_notify(),
            Self::Client { tls, .. } => tls.send_close_notify(),
        }
    }
}
