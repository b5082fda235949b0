//! A WebTransport session's state, shared by the application and the driver.

mod capsules;
mod datagrams;
mod end;
mod waiting;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use pronghorn_h3::capsule::{self, Capsule};
use pronghorn_h3::{ErrorCode, StreamId};

pub(crate) use capsules::CapsuleQueue;
use datagrams::Datagrams;
pub use datagrams::{DatagramError, DatagramSender};
pub use end::SessionEnd;
use waiting::WaitList;
pub(crate) use waiting::{WaitFor, WaitTicket};

use super::outbound::Outbound;
use super::session_stream::SessionStream;
use super::stream::{Stream, WorkQueue};
use crate::Incoming;
use crate::context::Context;
use crate::limits::Limits;
use crate::runtime::{Handle, Sleep};
use crate::stats::Stats;
use crate::transport::{ConnectionKey, Dir};

/// Value of `:protocol` for WebTransport sessions, in all supported drafts.
pub(crate) const WEBTRANSPORT: &str = "webtransport";

/// Work that a handle queues for the driver.
pub(super) enum Work {
    Session(Rc<Session>),
    Stream(Rc<SessionStream>),
}

impl Work {
    pub(super) fn connection(&self) -> ConnectionKey {
        match self {
            Self::Session(session) => session.connection,
            Self::Stream(stream) => stream.connection(),
        }
    }

    /// Ends the session or stream of a connection that is gone, since the connection can no longer
    /// do so.
    pub(super) fn on_connection_lost(&self) {
        match self {
            Self::Session(session) => session.lose("the connection has ended".to_owned()),
            Self::Stream(stream) => stream.on_session_end(),
        }
    }
}

/// A WebTransport session.
pub(crate) struct Session {
    connection: ConnectionKey,
    /// The stream of the CONNECT request.
    request: Rc<Stream>,
    work_queue: Rc<WorkQueue>,
    queued: Cell<bool>,
    max_datagram_bytes: usize,
    close_timeout: Duration,
    handle: Handle,
    stats: Arc<Stats>,
    capsules: CapsuleQueue,
    /// Datagrams queued for the network.
    outgoing: DatagramSender,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Whether the driver has registered the session.
    begun: bool,
    /// Streams that the peer has opened and the application has not accepted: bidirectional and
    /// unidirectional.
    opened: [VecDeque<Rc<SessionStream>>; 2],
    acceptors: [WaitList; 2],
    received: Datagrams,
    readers: WaitList,
    end: Option<SessionEnd>,
    /// The reason for which the session is lost, once the rest of its stream is read: that may
    /// contain the peer's own close.
    lost: Option<String>,
    draining: bool,
    /// Tasks that wait for the session's end or drain.
    watchers: WaitList,
}

impl State {
    fn waiting(&mut self, what: WaitFor) -> &mut WaitList {
        match what {
            WaitFor::Stream(dir) => &mut self.acceptors[kind(dir)],
            WaitFor::Datagram => &mut self.readers,
            WaitFor::End => &mut self.watchers,
        }
    }
}

pub(super) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

const fn kind(dir: Dir) -> usize {
    match dir {
        Dir::Bidi => 0,
        Dir::Uni | Dir::Control => 1,
    }
}

impl Session {
    /// Creates the session of an accepted extended CONNECT request, whose outgoing body carries
    /// `capsules`.
    pub(crate) fn new(request: Rc<Stream>, context: &Context, capsules: CapsuleQueue) -> Rc<Self> {
        let limits: &Limits = &context.config.limits;
        let session = Rc::new(Self {
            connection: request.connection,
            work_queue: request.work_queue().clone(),
            request,
            queued: Cell::default(),
            max_datagram_bytes: limits.webtransport_datagram_bytes() as usize,
            close_timeout: limits.webtransport_close_timeout(),
            handle: context.handle.clone(),
            stats: context.stats.clone(),
            capsules,
            outgoing: DatagramSender::new(limits.webtransport_datagram_bytes() as usize),
            state: RefCell::default(),
        });
        let mut queued = session.capsules.0.borrow_mut();
        queued.session = Rc::downgrade(&session);
        let is_lost = queued.is_lost;
        drop(queued);
        if is_lost {
            session.lose(ErrorCode::H3_REQUEST_CANCELLED.to_string());
        }
        session
    }

    /// Reads the CONNECT stream until it ends, which ends the session. The driver is notified at
    /// once, before any other work of the session.
    pub(crate) fn run(self: Rc<Self>, incoming: Incoming) -> impl Future<Output = ()> {
        self.queue_work();
        self.read(incoming)
    }

    async fn read(self: Rc<Self>, mut incoming: Incoming) {
        // Starts at the session's end.
        let mut patience: Option<Pin<Box<Sleep>>> = None;
        let mut ticket = self.ticket(WaitFor::End);
        let mut reader = capsule::Reader::default();
        // Reads to the end of the stream, even if the session is over before: otherwise the stream
        // would have to be reset.
        let end = loop {
            self.lose_if_read();
            let frame = poll_fn(|cx| {
                if self.outgoing.take_news(cx) {
                    self.queue_work();
                }
                if patience.is_none() && self.poll_end(&mut ticket, cx).is_ready() {
                    patience = Some(Box::pin(self.handle.sleep(self.close_timeout)));
                }
                // Polled first, so that it fires even if the peer keeps sending.
                match patience.as_mut().map_or(Poll::Pending, |patience| patience.as_mut().poll(cx))
                {
                    Poll::Ready(()) => Poll::Ready(Err(())),
                    Poll::Pending => Pin::new(&mut incoming).poll_frame(cx).map(Ok),
                }
            });
            let Ok(frame) = frame.await else {
                self.stats.webtransport_closes_timed_out.add(1);
                return self.request.send(Outbound::Abort(ErrorCode::H3_REQUEST_CANCELLED));
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(mut data) = frame.into_data()
                        && let Err(error) = self.on_capsules(&mut reader, &mut data)
                    {
                        break Err(error);
                    }
                }
                Some(Err(error)) => break Ok(SessionEnd::Lost(error.to_string())),
                None => {
                    break reader
                        .finish()
                        .map(|()| SessionEnd::Peer { code: 0, reason: String::new() });
                }
            }
        };
        match end {
            Ok(end) => self.end(end),
            Err(error) => {
                self.request.send(Outbound::Abort(error.code()));
                self.end(SessionEnd::Lost(error.to_string()));
            }
        }
    }

    fn on_capsules(
        self: &Rc<Self>,
        reader: &mut capsule::Reader,
        data: &mut Bytes,
    ) -> Result<(), capsule::Error> {
        while let Some(capsule) = reader.read(data)? {
            match capsule {
                Capsule::Datagram(payload) => self.on_datagram(&payload),
                Capsule::Drain => self.on_drain(),
                Capsule::Close { code, reason } => self.end(SessionEnd::Peer { code, reason }),
            }
        }
        Ok(())
    }

    // ---- the application's side

    /// Creates a local stream, which the driver opens when the peer's limit allows.
    pub(crate) fn open(self: &Rc<Self>, dir: Dir) -> Rc<SessionStream> {
        let stream = Rc::new(SessionStream::new(
            self.connection,
            self.id(),
            None,
            dir,
            self.work_queue.clone(),
        ));
        stream.queue_work();
        stream
    }

    /// Creates a ticket, with which the functions below wait.
    pub(crate) fn ticket(&self, what: WaitFor) -> WaitTicket<'_> {
        WaitTicket { session: self, what, number: None }
    }

    pub(crate) fn poll_accept(
        &self,
        ticket: &mut WaitTicket<'_>,
        cx: &TaskContext<'_>,
        dir: Dir,
    ) -> Poll<Result<Rc<SessionStream>, SessionEnd>> {
        let mut state = self.state.borrow_mut();
        if let Some(stream) = state.opened[kind(dir)].pop_front() {
            drop(state);
            stream.accept();
            return Poll::Ready(Ok(stream));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.clone()));
        }
        ticket.register(&mut state, cx);
        Poll::Pending
    }

    pub(crate) fn poll_datagram(
        &self,
        ticket: &mut WaitTicket<'_>,
        cx: &TaskContext<'_>,
    ) -> Poll<Result<Bytes, SessionEnd>> {
        let mut state = self.state.borrow_mut();
        if let Some(datagram) = state.received.pop() {
            return Poll::Ready(Ok(datagram));
        }
        if let Some(end) = &state.end {
            return Poll::Ready(Err(end.clone()));
        }
        ticket.register(&mut state, cx);
        Poll::Pending
    }

    pub(crate) fn send_datagram(self: &Rc<Self>, datagram: Bytes) -> Result<(), DatagramError> {
        self.outgoing.push(datagram)?;
        self.queue_work();
        Ok(())
    }

    pub(crate) fn datagram_sender(&self) -> &DatagramSender {
        &self.outgoing
    }

    pub(crate) fn poll_end(
        &self,
        ticket: &mut WaitTicket<'_>,
        cx: &TaskContext<'_>,
    ) -> Poll<SessionEnd> {
        let mut state = self.state.borrow_mut();
        if let Some(end) = &state.end {
            return Poll::Ready(end.clone());
        }
        ticket.register(&mut state, cx);
        Poll::Pending
    }

    /// Ready when the peer drains the session, or it has ended.
    pub(crate) fn poll_draining(
        &self,
        ticket: &mut WaitTicket<'_>,
        cx: &TaskContext<'_>,
    ) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        if state.draining || state.end.is_some() {
            return Poll::Ready(());
        }
        ticket.register(&mut state, cx);
        Poll::Pending
    }

    pub(crate) fn close(self: &Rc<Self>, code: u32, reason: &str) {
        if self.state.borrow().end.is_some() {
            return;
        }
        //= draft-ietf-webtrans-http3-16 section 6
        //# An endpoint that sends a WT_CLOSE_SESSION capsule MUST immediately send a FIN on the CONNECT Stream.
        // `end` sends the FIN.
        let mut out = BytesMut::new();
        capsule::encode_close(code, reason, &mut out);
        self.capsules.push(out.freeze());
        self.end(SessionEnd::Local { code, reason: reason.to_owned() });
    }

    pub(crate) fn drain(&self) {
        let mut out = BytesMut::new();
        capsule::encode_drain(&mut out);
        self.capsules.push(out.freeze());
    }

    fn queue_work(self: &Rc<Self>) {
        if !self.queued.replace(true) {
            self.work_queue.push_work(Work::Session(self.clone()));
        }
    }

    // ---- the driver's side

    pub(super) fn id(&self) -> Option<StreamId> {
        self.request.id.get()
    }

    /// Called when the session leaves the driver's queue.
    pub(super) fn unqueue(&self) {
        self.queued.set(false);
    }

    /// Registers the session. Returns whether it was not registered before.
    pub(super) fn begin(&self) -> bool {
        !std::mem::replace(&mut self.state.borrow_mut().begun, true)
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.borrow().end.is_some()
    }

    /// Ends the session, unless it has already ended.
    pub(super) fn end(self: &Rc<Self>, end: SessionEnd) {
        let mut state = self.state.borrow_mut();
        if state.end.is_some() {
            return;
        }
        self.outgoing.end(end.clone());
        self.stats.webtransport_datagrams_dropped.add(self.outgoing.take_dropped());
        state.end = Some(end);
        // The driver refuses streams that were not accepted.
        let opened = std::mem::take(&mut state.opened);
        let mut wakers = [state.readers.take(), state.watchers.take()].concat();
        wakers.extend(state.acceptors.iter_mut().flat_map(WaitList::take));
        drop(state);
        drop(opened);
        self.capsules.end();
        wake_all(wakers);
        self.queue_work();
    }

    /// Ends the session for `reason`, unless data not read yet contains the peer's own close.
    pub(super) fn lose(self: &Rc<Self>, reason: String) {
        self.state.borrow_mut().lost.get_or_insert(reason);
        self.lose_if_read();
    }

    fn lose_if_read(self: &Rc<Self>) {
        if self.request.has_unread() {
            return;
        }
        let lost = self.state.borrow_mut().lost.take();
        if let Some(reason) = lost {
            self.end(SessionEnd::Lost(reason));
        }
    }

    pub(super) fn on_drain(&self) {
        let mut state = self.state.borrow_mut();
        state.draining = true;
        let wakers = state.watchers.take();
        drop(state);
        wake_all(wakers);
    }

    pub(super) fn on_opened(&self, stream: Rc<SessionStream>, dir: Dir) {
        let mut state = self.state.borrow_mut();
        state.opened[kind(dir)].push_back(stream);
        let wakers = state.acceptors[kind(dir)].take();
        drop(state);
        wake_all(wakers);
    }

    pub(super) fn on_datagram(&self, payload: &[u8]) {
        let mut state = self.state.borrow_mut();
        if state.end.is_some() {
            return;
        }
        // Copied, since a datagram may be a small piece of a large receive buffer.
        let dropped = state.received.push(Bytes::copy_from_slice(payload), self.max_datagram_bytes);
        let wakers = state.readers.take();
        drop(state);
        self.stats.webtransport_datagrams_dropped.add(dropped);
        wake_all(wakers);
    }

    pub(super) fn set_datagram_size(&self, size: Option<usize>) {
        self.outgoing.set_size(size);
    }

    pub(super) fn next_datagram(&self) -> Option<Bytes> {
        self.stats.webtransport_datagrams_dropped.add(self.outgoing.take_dropped());
        self.outgoing.pop()
    }
}
