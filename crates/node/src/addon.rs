//! The state of a JavaScript environment: open exchanges, and events for JavaScript.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use pronghorn_engine::{Handle, Request, Responder, Response, WebTransport};
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::app::{App, UpgradeKind};
use crate::certificates::AsksForName;
use crate::declarative::Program;
use crate::events::{Event, Events, TunnelEvent};
use crate::exchange::Exchange;
use crate::head::HeadText;
use crate::js::{self, Env, Failure, Persistent, Value};
use crate::listener::Listener;
use crate::session::{self, Stream, Streams};
use crate::shared_buffers::{EVENT_NUMBERS, EVENTS, SharedBuffers};
use crate::socket::{Kind, Socket};
use crate::tunnel::Tunnel;

/// Maximum number of ended exchanges kept for reuse: many more than one call to JavaScript handles,
/// and less than 1 MB.
const MAX_SPARES: usize = 1 << 8;

/// Flag in a handler's number: the handler is a [`Program`], not JavaScript.
pub(crate) const DECLARATIVE: u32 = 1 << 30;

/// A call from JavaScript.
pub(crate) type Call<'a> = js::Call<'a, Addon>;
pub(crate) type Native = js::Native<Addon>;

/// An environment's addon, shared by everything on its thread.
pub(crate) struct Addon {
    pub(crate) env: Env,
    pub(crate) shared: SharedBuffers,
    /// JavaScript's function for events.
    pub(crate) dispatch: OnceCell<Persistent>,
    /// JavaScript's function for server names that have no certificate.
    pub(crate) missing_name: OnceCell<Persistent>,
    /// Exchanges that JavaScript has not ended, by slots that are not reused soon, so that a late
    /// operation reaches no other exchange.
    ///
    /// Boxed, because they are large and would be moved into the map, out of it, and when it grows.
    exchanges: RefCell<FxHashMap<u32, Box<Exchange>>>,
    /// Ended exchanges, for reuse.
    #[expect(clippy::vec_box, reason = "they go back into the map, which has them boxed")]
    spare_exchanges: RefCell<Vec<Box<Exchange>>>,
    last_slot: Cell<u32>,
    /// The exchange that was ended while its handler ran.
    pub(crate) lingering: Cell<Option<u32>>,
    /// HEAD responses that JavaScript has not ended: listener, client and slot.
    open_heads: RefCell<Vec<(u32, SocketAddr, u32)>>,
    events: RefCell<VecDeque<Event>>,
    delivering: Cell<bool>,
    /// Clients of the connection events being delivered.
    pub(crate) remotes: RefCell<VecDeque<SocketAddr>>,
    /// Payloads of the events being delivered.
    pub(crate) payloads: RefCell<VecDeque<Bytes>>,
    /// WebSocket connections that JavaScript has not closed, by numbers that are not reused soon.
    pub(crate) sockets: RefCell<FxHashMap<u32, Rc<Socket>>>,
    pub(crate) socket_kinds: RefCell<Slab<Rc<Kind>>>,
    /// WebTransport sessions that JavaScript has not closed.
    pub(crate) sessions: RefCell<FxHashMap<u32, WebTransport>>,
    /// Streams that JavaScript has not ended.
    pub(crate) streams: RefCell<FxHashMap<u32, Rc<Stream>>>,
    /// Counts live streams: each holds a clone.
    alive_streams: Rc<()>,
    /// Tunnels that JavaScript has not ended.
    pub(crate) tunnels: RefCell<FxHashMap<u32, Rc<Tunnel>>>,
    /// Counts live tunnels: each holds a clone.
    alive_tunnels: Rc<()>,
    /// The last number given to a connection, session, stream or tunnel.
    last_number: Cell<u32>,
    /// Header names that JavaScript refers to by number, each with the value kept for repetition.
    pub(crate) names: RefCell<Vec<(HeaderName, Option<HeaderValue>)>>,
    pub(crate) head_text: RefCell<HeadText>,
    /// Response bodies kept for repetition, by route number.
    pub(crate) repeated_bodies: RefCell<FxHashMap<u32, Bytes>>,
    pub(crate) programs: RefCell<Slab<Rc<Program>>>,
    pub(crate) apps: RefCell<Slab<Rc<App>>>,
    /// Listeners by numbers that are never reused: JavaScript may hold the number of an ended one.
    pub(crate) listeners: RefCell<FxHashMap<u32, Rc<Listener>>>,
    last_listener: Cell<u32>,
    /// The host's event loop is not libuv.
    pub(crate) poll_by_thread: Cell<bool>,
}

impl Addon {
    pub(crate) fn new(env: Env, exports: Value) -> Result<Rc<Self>, Failure> {
        Ok(Rc::new(Self {
            env,
            shared: SharedBuffers::new(env, exports)?,
            dispatch: OnceCell::new(),
            missing_name: OnceCell::new(),
            exchanges: RefCell::default(),
            spare_exchanges: RefCell::default(),
            last_slot: Cell::default(),
            lingering: Cell::default(),
            open_heads: RefCell::default(),
            events: RefCell::default(),
            delivering: Cell::default(),
            remotes: RefCell::default(),
            payloads: RefCell::default(),
            sockets: RefCell::default(),
            socket_kinds: RefCell::default(),
            sessions: RefCell::default(),
            streams: RefCell::default(),
            alive_streams: Rc::default(),
            tunnels: RefCell::default(),
            alive_tunnels: Rc::default(),
            last_number: Cell::default(),
            names: RefCell::default(),
            head_text: RefCell::default(),
            repeated_bodies: RefCell::default(),
            programs: RefCell::default(),
            apps: RefCell::default(),
            listeners: RefCell::default(),
            last_listener: Cell::default(),
            poll_by_thread: Cell::default(),
        }))
    }

    /// Returns the application with this number.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(crate) fn app(&self, number: u32) -> Result<Rc<App>, Failure> {
        Ok(self.apps.borrow().get(number as usize).cloned().ok_or("no such app")?)
    }

    /// Frees the programs and WebSocket kinds of an unreachable application.
    pub(crate) fn forget(&self, app: &App) {
        let (mut programs, mut kinds) =
            (self.programs.borrow_mut(), self.socket_kinds.borrow_mut());
        app.programs.take().into_iter().for_each(|number| drop(programs.try_remove(number)));
        app.socket_kinds.take().into_iter().for_each(|number| drop(kinds.try_remove(number)));
    }

    pub(crate) fn next_listener(&self) -> u32 {
        self.last_listener.set(self.last_listener.get() + 1);
        self.last_listener.get()
    }

    /// Adds a WebSocket connection. Returns its number.
    pub(crate) fn add_socket(&self, socket: Rc<Socket>) -> u32 {
        add(&self.sockets, &self.last_number, socket)
    }

    /// Adds a WebTransport session. Returns its number.
    pub(crate) fn add_session(&self, session: WebTransport) -> u32 {
        add(&self.sessions, &self.last_number, session)
    }

    /// Ends a stream for JavaScript: open directions are reset and stopped with this code.
    pub(crate) fn end_stream(&self, number: u32, code: u32) {
        let ended = self.streams.borrow_mut().remove(&number);
        if let Some(stream) = ended {
            stream.end(code);
        }
    }

    /// Returns the number of streams that JavaScript or a future holds.
    pub(crate) fn open_streams(&self) -> usize {
        Rc::strong_count(&self.alive_streams) - 1
    }

    /// Creates a tunnel. Returns its number and the tunnel.
    pub(crate) fn add_tunnel(&self, listener: u32, handle: Handle) -> (u32, Rc<Tunnel>) {
        let tunnel = Rc::new(Tunnel::new(listener, handle, self.alive_tunnels.clone()));
        (add(&self.tunnels, &self.last_number, tunnel.clone()), tunnel)
    }

    /// Returns the number of tunnels that JavaScript or the engine holds.
    pub(crate) fn open_tunnels(&self) -> usize {
        Rc::strong_count(&self.alive_tunnels) - 1
    }

    /// Queues a request for its handler, with the events of this turn.
    pub(crate) fn accept(
        self: &Rc<Self>,
        request: Request,
        responder: Responder,
        app: &App,
        listener: u32,
    ) {
        let upgrade = UpgradeKind::from_upgrade(request.upgrade.as_ref());
        let Some((handler, parameters)) =
            app.find(&request.method, &request.uri, &request.headers, upgrade, 0)
        else {
            return responder.send(Response::new(StatusCode::NOT_FOUND));
        };
        if handler & DECLARATIVE != 0 {
            return self.program(handler).answer(
                request,
                responder,
                &parameters,
                Response::new(StatusCode::OK),
            );
        }
        let spare = self.spare_exchanges.borrow_mut().pop();
        let mut exchange = spare.unwrap_or_else(|| Box::new(Exchange::idle()));
        exchange.begin(request, responder, app.number(), listener, parameters);
        let has_content = exchange.has_content();
        let slot = add(&self.exchanges, &self.last_slot, exchange);
        self.push(Event::Request { slot, handler, has_content });
    }

    /// Returns the program of a handler with [`DECLARATIVE`].
    pub(crate) fn program(&self, handler: u32) -> Rc<Program> {
        self.programs.borrow()[(handler & !DECLARATIVE) as usize].clone()
    }

    /// Runs `action` on an exchange, unless JavaScript has ended it.
    pub(crate) fn with_exchange<T>(
        &self,
        slot: u32,
        action: impl FnOnce(&mut Exchange) -> T,
    ) -> Option<T> {
        self.exchanges.borrow_mut().get_mut(&slot).map(|exchange| action(exchange))
    }

    pub(crate) fn take(&self, slot: u32) -> Option<Box<Exchange>> {
        self.exchanges.borrow_mut().remove(&slot)
    }

    /// Keeps an ended exchange for reuse.
    pub(crate) fn recycle(&self, mut exchange: Box<Exchange>) {
        exchange.clear();
        let mut spares = self.spare_exchanges.borrow_mut();
        if spares.len() < MAX_SPARES {
            spares.push(exchange);
        }
    }

    /// Returns the number of exchanges that JavaScript has not ended.
    pub(crate) fn open_exchanges(&self) -> usize {
        self.exchanges.borrow().len()
    }

    /// Watches an exchange that was not answered at once, for the peer leaving and for content.
    pub(crate) fn watch(self: &Rc<Self>, slot: u32) {
        let spawn = self.with_exchange(slot, |exchange| {
            let handle = exchange.responder.as_ref().map(|responder| responder.handle().clone())?;
            exchange.begin_watch().then_some(handle)
        });
        let Some(handle) = spawn.flatten() else { return };
        let (addon, own) = (self.clone(), handle.clone());
        handle.spawn(poll_fn(move |cx| {
            let mut exchanges = addon.exchanges.borrow_mut();
            exchanges
                .get_mut(&slot)
                .map_or(Poll::Ready(()), |exchange| exchange.poll(slot, &*addon, &own, cx))
        }));
    }

    /// Handles the end of a connection.
    pub(crate) fn on_closed(&self, listener: u32, remote: SocketAddr) {
        self.open_heads.borrow_mut().retain(|(of, client, slot)| {
            let stays = (*of, *client) != (listener, remote);
            if !stays {
                self.push(Event::Aborted { slot: *slot });
            }
            stays
        });
    }

    /// Ends the exchanges of a worker that is going to be dropped.
    pub(crate) fn abandon(&self, listener: u32) {
        let abandoned: Vec<_> = {
            let exchanges = self.exchanges.borrow();
            exchanges
                .iter()
                .filter(|(_, exchange)| exchange.listener == listener)
                .map(|(slot, _)| *slot)
                .collect()
        };
        self.open_heads.borrow_mut().retain(|(of, _, slot)| {
            if *of == listener {
                self.push(Event::Aborted { slot: *slot });
            }
            *of != listener
        });
        // Before the engine drops its ends, which would look like clients leaving.
        for (number, _) in
            self.tunnels.borrow().iter().filter(|(_, tunnel)| tunnel.listener == listener)
        {
            self.push(Event::Tunnel { tunnel: *number, what: TunnelEvent::Closed });
        }
        for slot in abandoned {
            let taken =
                self.with_exchange(slot, |exchange| (exchange.responder.take(), exchange.reads_on));
            let Some((responder, reads_on)) = taken else { continue };
            if responder.is_some() || reads_on {
                self.push(Event::Aborted { slot });
            }
            if let Some(responder) = responder {
                responder.abort();
            }
        }
    }

    /// Delivers all events to JavaScript in one call, and applies its responses.
    pub(crate) fn deliver(self: &Rc<Self>) {
        let Some(dispatch) = self.dispatch.get() else { return };
        // A nested call would overwrite the events that JavaScript is reading; the outer call
        // delivers them.
        if self.events.borrow().is_empty() || self.delivering.replace(true) {
            return;
        }
        loop {
            let count = self.write_events();
            if count == 0 {
                break;
            }
            self.env.scope(|| self.env.call(dispatch, &[self.env.number(count as f64)]));
            self.shared.clear_current();
            // If JavaScript was interrupted, the next events must not get these payloads.
            self.payloads.borrow_mut().clear();
            self.remotes.borrow_mut().clear();
            self.apply_answers();
        }
        self.delivering.set(false);
    }

    fn write_events(&self) -> usize {
        let mut events = self.events.borrow_mut();
        let exchanges = self.exchanges.borrow();
        let has_socket = |socket: u32| self.sockets.borrow().contains_key(&socket);
        let mut count = 0;
        while count < EVENTS {
            let Some(event) = events.pop_front() else { break };
            let numbers: [i32; EVENT_NUMBERS] = match event {
                Event::Request { slot, handler, has_content } => {
                    [0, slot as i32, handler as i32, has_content.into()]
                }
                Event::Data { slot } if exchanges.contains_key(&slot) => {
                    [1, slot as i32, (!exchanges[&slot].has_content()).into(), 0]
                }
                Event::Aborted { slot } if exchanges.contains_key(&slot) => [2, slot as i32, 0, 0],
                Event::Writable { slot } if exchanges.contains_key(&slot) => [3, slot as i32, 0, 0],
                Event::Connection { app, opened, remote } => {
                    self.remotes.borrow_mut().push_back(remote);
                    [4, app as i32, if opened { 1 } else { -1 }, 0]
                }
                Event::Released { listener } => [5, listener as i32, 0, 0],
                Event::Message { socket, what, data } if has_socket(socket) => {
                    self.payloads.borrow_mut().push_back(data);
                    [6, socket as i32, what, 0]
                }
                Event::Drain { socket } if has_socket(socket) => [7, socket as i32, 0, 0],
                Event::Closed { socket, code, reason } if has_socket(socket) => {
                    self.sockets.borrow_mut().remove(&socket);
                    self.payloads.borrow_mut().push_back(reason);
                    [8, socket as i32, code.into(), 0]
                }
                Event::Session { session, what, code, data }
                    if self.sessions.borrow().contains_key(&session) =>
                {
                    if what == session::CLOSED {
                        self.sessions.borrow_mut().remove(&session);
                    }
                    self.payloads.borrow_mut().push_back(data);
                    [9, session as i32, what, code as i32]
                }
                Event::Stream { stream, what, code, data }
                    if self.streams.borrow().contains_key(&stream) =>
                {
                    self.payloads.borrow_mut().push_back(data);
                    [10, stream as i32, what, code as i32]
                }
                Event::Tunnel { tunnel, what } if self.tunnels.borrow().contains_key(&tunnel) => {
                    let has_ended =
                        what == TunnelEvent::Readable && self.tunnels.borrow()[&tunnel].has_ended();
                    [11, tunnel as i32, what as i32, has_ended.into()]
                }
                // A new stream of an ended session.
                Event::Session { what, code, .. } if session::is_stream(what) => {
                    self.end_stream(code, 0);
                    continue;
                }
                // The subject has ended since.
                Event::Data { .. }
                | Event::Aborted { .. }
                | Event::Writable { .. }
                | Event::Message { .. }
                | Event::Drain { .. }
                | Event::Session { .. }
                | Event::Stream { .. }
                | Event::Tunnel { .. }
                | Event::Closed { .. } => continue,
            };
            self.shared.write_event(count, numbers);
            count += 1;
        }
        count
    }
}

impl Events for Addon {
    fn push(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
    }

    fn track_head_response(&self, listener: u32, remote: SocketAddr, slot: u32) {
        let mut open_heads = self.open_heads.borrow_mut();
        // Ended ones are removed only when the list would grow.
        if open_heads.len() == open_heads.capacity() {
            let exchanges = self.exchanges.try_borrow();
            open_heads.retain(|(_, _, slot)| {
                exchanges.as_ref().map_or(true, |open| open.contains_key(slot))
            });
        }
        open_heads.push((listener, remote, slot));
    }
}

impl Streams for Addon {
    fn add_stream(&self) -> (u32, Rc<Stream>) {
        let stream = Rc::new(Stream::new(self.alive_streams.clone()));
        (add(&self.streams, &self.last_number, stream.clone()), stream)
    }
}

impl AsksForName for Addon {
    fn ask_for_name(&self, app: u32, name: &str) {
        if let Some(missing_name) = self.missing_name.get() {
            self.env.scope(|| {
                self.env.call(missing_name, &[self.env.number(app.into()), self.env.string(name)])
            });
        }
    }
}

/// Adds `value` under an unused number that is not reused soon.
fn add<T>(to: &RefCell<FxHashMap<u32, T>>, last: &Cell<u32>, value: T) -> u32 {
    let mut values = to.borrow_mut();
    loop {
        // Events carry the number as a signed integer.
        let number = (last.get() + 1) & (i32::MAX as u32);
        last.set(number);
        if let Entry::Vacant(place) = values.entry(number) {
            place.insert(value);
            return number;
        }
    }
}
