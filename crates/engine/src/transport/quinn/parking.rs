//! Handshakes that wait for a shared session or for the signature of a slow key.
//!
//! The library cannot continue a handshake later: it takes an answer only when a packet arrives. So
//! the ClientHello is read from the client's packets here, and TLS runs on it before the library
//! accepts the connection. Until then the library buffers the client's datagrams.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::crypto::HmacKey;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, Incoming, ServerConfig, Side};

use super::Quinn;
use super::connection::PathBytes;
use crate::connection_limits::ConnectionPermit;
use crate::contained::contained;
use crate::limits::HANDSHAKE_BYTES;
use crate::memory::Charge;
use crate::runtime::Wakeup;
use crate::tls::{Fetched, HelloSummary, Parking};
use crate::transport::connection_id::{Generator, ReservedId, is_first_flight};
use crate::transport::first_flight::{FirstFlight, Progress, destination, is_initial};
use crate::transport::keys::ResetKeys;
use crate::transport::ready_tls::ReadyTls;
use crate::transport::server_parameters::ServerParameters;
use crate::transport::session::{ServerTls, Session};
use crate::window_budget::WindowPromise;

/// The parked handshakes of an endpoint.
pub(super) struct ParkedHandshakes {
    waiting: HashMap<u64, Parked>,
    /// By the destination of their clients' packets.
    by_id: HashMap<ConnectionId, u64>,
    /// When they time out, the earliest first: all have the same time. Some may have ended.
    deadlines: VecDeque<(Instant, u64)>,
    /// Number of those whose ClientHello is complete: they wait for something else.
    waiting_elsewhere: usize,
    next: u64,
    /// Where other threads put what the handshakes wait for.
    inbox: Arc<Inbox>,
    ids: Generator,
    reserved: ReservedId,
    reset_key: Arc<ResetKeys>,
}

/// One parked handshake.
struct Parked {
    incoming: Incoming,
    id: ConnectionId,
    /// When the first datagram arrived.
    since: Instant,
    /// Bytes of the datagrams received so far, and of memory that they take.
    received: usize,
    bytes: usize,
    tls: Arc<ServerTls>,
    parking: Arc<Parking>,
    /// Present until the ClientHello is complete.
    flight: Option<FirstFlight>,
    hello: Vec<u8>,
    is_slow: bool,
    /// Whether it waits for something else than the client's datagrams.
    waits: bool,
    /// Set when the handshake has ended, so that no other thread begins to answer it.
    is_over: Arc<AtomicBool>,
    permit: ConnectionPermit,
    windows: WindowPromise,
    memory: Charge,
}

/// What is known of a datagram before the library gets it.
pub(super) enum Ahead {
    /// It belongs to a parked handshake.
    Parked(u64),
    /// It belongs to one that has no room for it.
    Dropped,
    /// It may begin a handshake: a copy.
    First(BytesMut),
    Other,
}

/// Bytes that even an empty datagram takes while it is buffered.
const BUFFERED_DATAGRAM_BYTES: usize = 512;

/// What a handshake was waiting for.
enum Arrival {
    Sessions(Fetched),
    /// The answer to the ClientHello, with the connection ID in it.
    Answer(ConnectionId, Vec<u8>, Box<Session>),
    /// The thread that should have answered was not available, or has panicked.
    Failed,
}

#[derive(Default)]
struct Inbox {
    arrivals: Mutex<Vec<(u64, Arrival)>>,
    has_any: AtomicBool,
    wakeup: Option<Arc<Wakeup>>,
}

impl Inbox {
    fn put(&self, number: u64, arrival: Arrival) {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).push((number, arrival));
        self.has_any.store(true, Ordering::Release);
        // Also in the worker's own turn, which looks here only at its beginning.
        if let Some(wakeup) = &self.wakeup {
            // It fails only if the descriptor is readable already.
            let _ = wakeup.notify_descriptor();
        }
    }

    fn take(&self) -> Vec<(u64, Arrival)> {
        if !self.has_any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reports a failure unless it is replaced by an answer.
struct Promise {
    inbox: Arc<Inbox>,
    number: u64,
    is_kept: bool,
}

impl Promise {
    fn keep(mut self, arrival: Arrival) {
        self.is_kept = true;
        self.inbox.put(self.number, arrival);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if !self.is_kept {
            self.inbox.put(self.number, Arrival::Failed);
        }
    }
}

impl ParkedHandshakes {
    pub(super) fn new(
        ids: Generator,
        reserved: ReservedId,
        reset_key: Arc<ResetKeys>,
        wakeup: Option<Arc<Wakeup>>,
    ) -> Self {
        Self {
            waiting: HashMap::new(),
            by_id: HashMap::new(),
            deadlines: VecDeque::new(),
            waiting_elsewhere: 0,
            next: 0,
            inbox: Arc::new(Inbox { wakeup, ..Inbox::default() }),
            ids,
            reserved,
            reset_key,
        }
    }

    /// Returns the number of parked handshakes.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the number of those that wait for another machine or thread.
    pub(super) fn waiting_elsewhere(&self) -> u64 {
        self.waiting_elsewhere as u64
    }

    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some((until, number)) = self.deadlines.front() {
            if self.waiting.contains_key(number) {
                return Some(*until);
            }
            self.deadlines.pop_front();
        }
        None
    }

    /// Returns the handshake that a datagram belongs to.
    fn find(&self, datagram: &[u8]) -> Option<u64> {
        if self.by_id.is_empty() || !is_first_flight(datagram) {
            return None;
        }
        self.by_id.get(&destination(datagram)?).copied()
    }

    fn remove(&mut self, number: u64) -> Option<Parked> {
        let parked = self.waiting.remove(&number)?;
        self.by_id.remove(&parked.id);
        self.waiting_elsewhere -= usize::from(parked.waits);
        parked.is_over.store(true, Ordering::Relaxed);
        Some(parked)
    }
}

impl Quinn {
    /// Parks a new connection until its handshake has what it needs.
    pub(super) fn park(
        &mut self,
        now: Instant,
        incoming: Incoming,
        datagram: &[u8],
        (permit, windows): (ConnectionPermit, WindowPromise),
        (tls, parking): (Arc<ServerTls>, Arc<Parking>),
    ) {
        let Some(id) = destination(datagram) else {
            return self.endpoint.ignore(incoming);
        };
        let mut flight = FirstFlight::new(id, tls.peek_keys(&id));
        if flight.read(datagram).is_err() {
            self.endpoint.ignore(incoming);
            // Another worker may have begun the connection.
            if self.may_return {
                self.is_stray = true;
            } else {
                self.stats.quic_refused.add(1);
            }
            return;
        }
        let number = self.parked.next;
        self.parked.next += 1;
        self.parked.by_id.insert(id, number);
        self.parked.deadlines.push_back((now + self.config.limits.handshake_timeout(), number));
        let mut parked = Parked {
            incoming,
            id,
            since: now,
            received: datagram.len(),
            bytes: datagram.len(),
            tls,
            parking,
            flight: Some(flight),
            hello: Vec::new(),
            is_slow: false,
            waits: false,
            is_over: Arc::default(),
            permit,
            windows,
            memory: Charge::default(),
        };
        parked.memory.set_here(HANDSHAKE_BYTES);
        self.parked.waiting.insert(number, parked);
        self.handshakes += 1;
        self.look_up(now, number);
    }

    /// Looks at a datagram ahead of the library, which may buffer it.
    pub(super) fn look_ahead(&mut self, datagram: &mut BytesMut) -> Ahead {
        if !self.config.parks() && self.parked.waiting.is_empty() {
            return Ahead::Other;
        }
        let ahead = match self.parked.find(datagram) {
            Some(number) => self.read_ahead(number, datagram),
            None if is_initial(datagram) => Ahead::First(datagram.clone()),
            None => return Ahead::Other,
        };
        // A received datagram shares memory with others that came together with it, which would be
        // kept as long.
        *datagram = BytesMut::from(&datagram[..]);
        ahead
    }

    /// Reads a datagram of a parked handshake, if there is room for it.
    fn read_ahead(&mut self, number: u64, datagram: &[u8]) -> Ahead {
        let Some(parked) = self.parked.waiting.get_mut(&number) else { return Ahead::Other };
        let bytes = parked.bytes + datagram.len().max(BUFFERED_DATAGRAM_BYTES);
        if bytes as u64 > self.config.limits.parked_handshake_bytes() {
            self.stats.parked_datagrams_dropped.add(1);
            return Ahead::Dropped;
        }
        parked.bytes = bytes;
        parked.memory.set_here(HANDSHAKE_BYTES + bytes as u64);
        parked.received += datagram.len();
        if let Some(flight) = &mut parked.flight {
            // What cannot be decrypted is dropped by the library too.
            let _ = flight.read(datagram);
        }
        Ahead::Parked(number)
    }

    /// Looks up the sessions that a client offers, once its ClientHello is complete.
    pub(super) fn look_up(&mut self, now: Instant, number: u64) {
        let max_waiting = self.config.limits.parked_handshakes();
        let max_waiting = usize::try_from(max_waiting).unwrap_or(usize::MAX);
        let Some(parked) = self.parked.waiting.get_mut(&number) else { return };
        let Some(flight) = &mut parked.flight else { return };
        match flight.progress() {
            Progress::Incomplete => return,
            Progress::Refused => return self.refuse_parked(number),
            Progress::Complete => parked.hello = flight.take(),
        }
        parked.flight = None;
        let hello = HelloSummary::new(&parked.hello);
        let parking = parked.parking.clone();
        parked.is_slow = parking.signs_slowly(&hello);
        let has_to_fetch = parking.has_to_fetch(&hello);
        if !parked.is_slow && !has_to_fetch {
            return self.answer_hello(now, number, Fetched::default());
        }
        let is_slow = parked.is_slow;
        parked.waits = self.parked.waiting_elsewhere < max_waiting;
        if !parked.waits {
            self.stats.parked_handshakes_refused.add(1);
            if is_slow {
                return self.refuse_parked(number);
            }
            // A full handshake needs nothing from elsewhere.
            return self.answer_hello(now, number, Fetched::default());
        }
        self.parked.waiting_elsewhere += 1;
        self.stats.handshakes_parked.add(1);
        self.stats.quic_handshakes_parked_now.add(1);
        let inbox = self.parked.inbox.clone();
        parking.fetch(&hello, move |fetched| inbox.put(number, Arrival::Sessions(fetched)));
        // The store may have answered at once.
        self.continue_parked(now);
    }

    /// Continues handshakes whose sessions or answers have arrived.
    pub(super) fn continue_parked(&mut self, now: Instant) {
        let arrivals = self.parked.inbox.take();
        if arrivals.is_empty() {
            return;
        }
        // Whatever becomes of these says nothing about the datagram that is being handled.
        let may_return = std::mem::take(&mut self.may_return);
        for (number, arrival) in arrivals {
            if contained(|| self.on_arrival(now, number, arrival)).is_none() {
                self.stats.handler_panics.add(1);
                self.parked.reserved.take();
                if let Some(parked) = self.remove_parked(number) {
                    self.endpoint.ignore(parked.incoming);
                }
            }
        }
        self.may_return = may_return;
    }

    fn on_arrival(&mut self, now: Instant, number: u64, arrival: Arrival) {
        match arrival {
            Arrival::Sessions(fetched) => self.answer_hello(now, number, fetched),
            Arrival::Answer(id, parameters, session) => {
                self.accept_parked(now, number, id, parameters, *session);
            }
            // The thread of a handshake that has ended does not answer either.
            Arrival::Failed if self.parked.waiting.contains_key(&number) => {
                self.stats.signing_threads_exhausted.add(1);
                self.refuse_parked(number);
            }
            Arrival::Failed => {}
        }
    }

    /// Refuses all parked handshakes.
    pub(super) fn refuse_all_parked(&mut self) {
        let numbers: Vec<_> = self.parked.waiting.keys().copied().collect();
        for number in numbers {
            self.refuse_parked(number);
        }
    }

    /// Drops handshakes that have waited for too long.
    pub(super) fn expire_parked(&mut self, now: Instant) {
        while let Some((until, number)) = self.parked.deadlines.front().copied()
            && until <= now
        {
            self.parked.deadlines.pop_front();
            if let Some(parked) = self.remove_parked(number) {
                self.stats.handshakes_timed_out.add(1);
                self.endpoint.ignore(parked.incoming);
            }
        }
    }

    /// Runs TLS on the ClientHello, here or on another thread.
    fn answer_hello(&mut self, now: Instant, number: u64, fetched: Fetched) {
        let id = self.parked.ids.generate_cid();
        let Some(parked) = self.parked.waiting.get_mut(&number) else { return };
        let (tls, parking, is_slow) = (parked.tls.clone(), parked.parking.clone(), parked.is_slow);
        let hello = std::mem::take(&mut parked.hello);
        let is_over = parked.is_over.clone();
        let parameters = self.parameters(number, id).encode();
        let answer = {
            let (parameters, parking) = (parameters.clone(), parking.clone());
            move || tls.session(parameters).answer(hello, parking, fetched, is_slow)
        };
        if !is_slow {
            return self.accept_parked(now, number, id, parameters, answer());
        }
        let promise = Promise { inbox: self.parked.inbox.clone(), number, is_kept: false };
        let is_running = parking.run(move || {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let session = answer();
            promise.keep(Arrival::Answer(id, parameters, Box::new(session)));
        });
        if !is_running {
            // The promise was dropped with the job.
            self.continue_parked(now);
        }
    }

    /// Returns the transport parameters that the library will have for this connection.
    fn parameters(&self, number: u64, source: ConnectionId) -> ServerParameters {
        let parked = &self.parked.waiting[&number];
        let limits = &self.config.limits;
        let original = *parked.incoming.orig_dst_cid();
        let key = &self.parked.reset_key;
        let mut signature = vec![0; key.signature_len()];
        HmacKey::sign(&**key, &source, &mut signature);
        let (reset_token, _) =
            signature.split_first_chunk().expect("invariant: SHA-256 has 32 bytes");
        ServerParameters {
            original,
            source,
            // The client's packets go to the ID of the Retry, if there was one.
            retry: (!parked.incoming.may_retry()).then_some(parked.id),
            reset_token: *reset_token,
            idle_timeout: limits.idle_timeout(),
            max_udp_payload: self.max_udp_payload,
            connection_window: parked.windows.receive,
            stream_window: limits.stream_window_bytes(),
            bidi_streams: self.config.first_requests(Side::Server),
            uni_streams: limits.uni_streams(),
            datagram: self.config.largest_received_datagram(),
        }
    }

    /// Lets the library accept the connection, with the answer to its ClientHello.
    fn accept_parked(
        &mut self,
        now: Instant,
        number: u64,
        id: ConnectionId,
        parameters: Vec<u8>,
        session: Session,
    ) {
        let Some(parked) = self.remove_parked(number) else { return };
        let Parked { incoming, since, tls, permit, windows, received, .. } = parked;
        let trace = self.begin_trace(now, &incoming);
        let ready = ReadyTls::new(tls, parameters, session);
        let Some(server) = self.server_config(&windows, trace.as_ref()) else {
            return self.endpoint.ignore(incoming);
        };
        let mut server = ServerConfig::clone(&server);
        server.crypto = ready;
        self.parked.reserved.set(id);
        let unvalidated =
            (!incoming.remote_address_validated()).then_some(PathBytes { received, sent: 0 });
        self.accept_with(
            (now, since),
            incoming,
            Some(Arc::new(server)),
            (permit, windows),
            unvalidated,
            trace,
        );
        self.parked.reserved.take();
    }

    fn refuse_parked(&mut self, number: u64) {
        let Some(parked) = self.remove_parked(number) else { return };
        self.refuse(parked.incoming);
    }

    fn remove_parked(&mut self, number: u64) -> Option<Parked> {
        let parked = self.parked.remove(number)?;
        self.handshakes -= 1;
        self.stats.quic_handshakes_parked_now.subtract(u64::from(parked.waits));
        Some(parked)
    }
}
