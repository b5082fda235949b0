//! What an environment of JavaScript has: the exchanges that are open, and what JavaScript has to be told.

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

use crate::declarative::Program;
use crate::exchange::Exchange;
use crate::head::HeadText;
use crate::js::{Env, Failure, Kept, Value};
use crate::listening::{App, Listening, Wish};
use crate::session::{self, Stream};
use crate::shared::{EVENT_NUMBERS, EVENTS, Shared};
use crate::socket::{Kind, Socket};
use crate::tunnel::{Told, Tunnel};

/// How many exchanges that are over are kept for those to come: many more than one call to JavaScript is about, and less than 1 MB.
const MAX_SPARES: usize = 1 << 8;

/// Set in a handler's number where it is a [`Program`] and not JavaScript.
pub(crate) const DECLARATIVE: u32 = 1 << 30;

/// What JavaScript has to be told. Of an exchange that has ended since nothing is told.
pub(crate) enum Event {
    Request {
        slot: u32,
        handler: u32,
        has_content: bool,
    },
    Data {
        slot: u32,
    },
    Aborted {
        slot: u32,
    },
    Writable {
        slot: u32,
    },
    /// A connection to an application that filters them.
    Connection {
        app: u32,
        opened: bool,
        remote: SocketAddr,
    },
    /// All of it has ended.
    Released {
        listening: u32,
    },
    /// A message of a WebSocket connection: text (0), binary (1), a ping (2) or a pong (3).
    Message {
        socket: u32,
        what: i32,
        data: Bytes,
    },
    /// What waited to be sent has gone, or half of it.
    Drain {
        socket: u32,
    },
    /// A WebTransport session; see `session.rs`.
    Session {
        session: u32,
        what: i32,
        code: u32,
        data: Bytes,
    },
    /// A stream of one.
    Stream {
        stream: u32,
        what: i32,
        code: u32,
        data: Bytes,
    },
    /// A WebSocket connection has ended.
    Closed {
        socket: u32,
        code: u16,
        reason: Bytes,
    },
    /// A connection or stream that goes on in another protocol; see `tunnel.rs`.
    Tunnel {
        tunnel: u32,
        what: Told,
    },
}

pub(crate) struct Addon {
    pub(crate) env: Env,
    pub(crate) shared: Shared,
    /// JavaScript's function for events.
    pub(crate) dispatch: OnceCell<Kept>,
    /// JavaScript's function for server names that have no certificate.
    pub(crate) missing_name: OnceCell<Kept>,
    /// Those that JavaScript has not ended, by slots that are not given again soon: what it says too late of one reaches no other.
    ///
    /// Boxed: they are large, and each would be moved into the map, out of it, and when the map grows.
    exchanges: RefCell<FxHashMap<u32, Box<Exchange>>>,
    /// Those that are over.
    #[expect(clippy::vec_box, reason = "they go back into the map, which has them boxed")]
    spare_exchanges: RefCell<Vec<Box<Exchange>>>,
    last_slot: Cell<u32>,
    /// The one that was ended while its handler ran.
    pub(crate) lingering: Cell<Option<u32>>,
    /// Responses to HEAD that JavaScript still writes: listener, client and slot.
    outlived: RefCell<Vec<(u32, SocketAddr, u32)>>,
    events: RefCell<VecDeque<Event>>,
    delivering: Cell<bool>,
    /// Clients of connections that JavaScript is being told of.
    pub(crate) remotes: RefCell<VecDeque<SocketAddr>>,
    /// What belongs to the events that JavaScript is being told of.
    pub(crate) payloads: RefCell<VecDeque<Bytes>>,
    /// Those that JavaScript has not closed, by numbers that are not given again soon.
    pub(crate) sockets: RefCell<FxHashMap<u32, Rc<Socket>>>,
    pub(crate) socket_kinds: RefCell<Slab<Rc<Kind>>>,
    /// Those that JavaScript has not closed, and streams that it is not done with.
    pub(crate) sessions: RefCell<FxHashMap<u32, WebTransport>>,
    pub(crate) streams: RefCell<FxHashMap<u32, Rc<Stream>>>,
    /// Every stream that anybody looks after has a copy.
    alive_streams: Rc<()>,
    /// Those that JavaScript is not done with.
    pub(crate) tunnels: RefCell<FxHashMap<u32, Rc<Tunnel>>>,
    /// Every tunnel that anybody looks after has a copy.
    alive_tunnels: Rc<()>,
    /// The last number that one of these was given.
    last_number: Cell<u32>,
    /// Names of fields that JavaScript refers to by number, each with the value that it asked to keep.
    pub(crate) names: RefCell<Vec<(HeaderName, Option<HeaderValue>)>>,
    pub(crate) head_text: RefCell<HeadText>,
    /// Content that JavaScript refers to by the number of its route.
    pub(crate) kept: RefCell<FxHashMap<u32, Bytes>>,
    pub(crate) programs: RefCell<Slab<Rc<Program>>>,
    pub(crate) apps: RefCell<Slab<Rc<App>>>,
    /// By numbers that are not given again: JavaScript may hold one of something that has ended.
    pub(crate) listenings: RefCell<FxHashMap<u32, Rc<Listening>>>,
    last_listening: Cell<u32>,
    /// The host has no libuv.
    pub(crate) poll_by_thread: Cell<bool>,
}

impl Addon {
    pub(crate) fn new(env: Env, exports: Value) -> Result<Rc<Self>, Failure> {
        Ok(Rc::new(Self {
            env,
            shared: Shared::new(env, exports)?,
            dispatch: OnceCell::new(),
            missing_name: OnceCell::new(),
            exchanges: RefCell::default(),
            spare_exchanges: RefCell::default(),
            last_slot: Cell::default(),
            lingering: Cell::default(),
            outlived: RefCell::default(),
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
            kept: RefCell::default(),
            programs: RefCell::default(),
            apps: RefCell::default(),
            listenings: RefCell::default(),
            last_listening: Cell::default(),
            poll_by_thread: Cell::default(),
        }))
    }

    /// The application with this number.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn app(&self, number: u32) -> Result<Rc<App>, Failure> {
        Ok(self.apps.borrow().get(number as usize).cloned().ok_or("no such app")?)
    }

    /// Lets go of what an application has that nobody can reach any more.
    pub(crate) fn forget(&self, app: &App) {
        let (mut programs, mut kinds) = (self.programs.borrow_mut(), self.socket_kinds.borrow_mut());
        app.programs.take().into_iter().for_each(|number| drop(programs.try_remove(number)));
        app.socket_kinds.take().into_iter().for_each(|number| drop(kinds.try_remove(number)));
    }

    pub(crate) fn next_listening(&self) -> u32 {
        self.last_listening.set(self.last_listening.get() + 1);
        self.last_listening.get()
    }

    /// Returns its number.
    pub(crate) fn add_socket(&self, socket: Rc<Socket>) -> u32 {
        add(&self.sockets, &self.last_number, socket)
    }

    /// Returns its number.
    pub(crate) fn add_session(&self, session: WebTransport) -> u32 {
        add(&self.sessions, &self.last_number, session)
    }

    /// A stream and its number.
    pub(crate) fn add_stream(&self) -> (u32, Rc<Stream>) {
        let stream = Rc::new(Stream::new(self.alive_streams.clone()));
        (add(&self.streams, &self.last_number, stream.clone()), stream)
    }

    /// JavaScript is done with a stream: what has not ended yet is reset and stopped with this code.
    pub(crate) fn end_stream(&self, number: u32, code: u32) {
        let ended = self.streams.borrow_mut().remove(&number);
        if let Some(stream) = ended {
            stream.end(code);
        }
    }

    /// How many streams somebody looks after: JavaScript, or a future.
    pub(crate) fn open_streams(&self) -> usize {
        Rc::strong_count(&self.alive_streams) - 1
    }

    /// A tunnel and its number.
    pub(crate) fn add_tunnel(&self, listening: u32, handle: Handle) -> (u32, Rc<Tunnel>) {
        let tunnel = Rc::new(Tunnel::new(listening, handle, self.alive_tunnels.clone()));
        (add(&self.tunnels, &self.last_number, tunnel.clone()), tunnel)
    }

    /// How many tunnels JavaScript or the engine looks after.
    pub(crate) fn open_tunnels(&self) -> usize {
        Rc::strong_count(&self.alive_tunnels) - 1
    }

    pub(crate) fn push(&self, event: Event) {
        self.events.borrow_mut().push_back(event);
    }

    /// Gives a request to its handler, with the events of this round.
    pub(crate) fn accept(self: &Rc<Self>, request: Request, responder: Responder, app: &App, listening: u32) {
        let wish = Wish::of(request.upgrade.as_ref());
        let Some((handler, parameters)) = app.find(&request.method, &request.uri, &request.headers, wish, 0) else {
            return responder.send(Response::new(StatusCode::NOT_FOUND));
        };
        if handler & DECLARATIVE != 0 {
            return self.program(handler).answer(request, responder, &parameters, Response::new(StatusCode::OK));
        }
        let spare = self.spare_exchanges.borrow_mut().pop();
        let mut exchange = spare.unwrap_or_else(|| Box::new(Exchange::idle()));
        exchange.begin(request, responder, app.number(), listening, parameters);
        let has_content = exchange.has_content();
        let slot = add(&self.exchanges, &self.last_slot, exchange);
        self.push(Event::Request { slot, handler, has_content });
    }

    /// The program that a handler with [`DECLARATIVE`] is.
    pub(crate) fn program(&self, handler: u32) -> Rc<Program> {
        self.programs.borrow()[(handler & !DECLARATIVE) as usize].clone()
    }

    /// Runs `action` on an exchange that JavaScript has not ended.
    pub(crate) fn with_exchange<T>(&self, slot: u32, action: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
        self.exchanges.borrow_mut().get_mut(&slot).map(|exchange| action(exchange))
    }

    pub(crate) fn take(&self, slot: u32) -> Option<Box<Exchange>> {
        self.exchanges.borrow_mut().remove(&slot)
    }

    /// Keeps the memory of an exchange that is over.
    pub(crate) fn keep(&self, mut exchange: Box<Exchange>) {
        exchange.clear();
        let mut spares = self.spare_exchanges.borrow_mut();
        if spares.len() < MAX_SPARES {
            spares.push(exchange);
        }
    }

    /// How many exchanges JavaScript has not ended.
    pub(crate) fn open_exchanges(&self) -> usize {
        self.exchanges.borrow().len()
    }

    /// Looks after an exchange that is not answered at once: whether the peer goes away, and what content comes.
    pub(crate) fn watch(self: &Rc<Self>, slot: u32) {
        let spawn = self.with_exchange(slot, |exchange| {
            let handle = exchange.responder.as_ref().map(|responder| responder.handle().clone())?;
            exchange.begin_watch().then_some(handle)
        });
        let Some(handle) = spawn.flatten() else { return };
        let (addon, own) = (self.clone(), handle.clone());
        handle.spawn(poll_fn(move |cx| {
            let mut exchanges = addon.exchanges.borrow_mut();
            exchanges.get_mut(&slot).map_or(Poll::Ready(()), |exchange| exchange.poll(slot, &addon, &own, cx))
        }));
    }

    /// The client of a HEAD has all that it wants of a response that JavaScript has not ended. If the connection ends before JavaScript does
    /// that, it is told: it may be content without an end.
    pub(crate) fn outlive(&self, listening: u32, remote: SocketAddr, slot: u32) {
        let mut outlived = self.outlived.borrow_mut();
        // Those that were ended since are not looked for each time.
        if outlived.len() == outlived.capacity() {
            let exchanges = self.exchanges.try_borrow();
            outlived.retain(|(_, _, slot)| exchanges.as_ref().map_or(true, |open| open.contains_key(slot)));
        }
        outlived.push((listening, remote, slot));
    }

    /// A connection has ended.
    pub(crate) fn on_closed(&self, listening: u32, remote: SocketAddr) {
        self.outlived.borrow_mut().retain(|(of, client, slot)| {
            let stays = (*of, *client) != (listening, remote);
            if !stays {
                self.push(Event::Aborted { slot: *slot });
            }
            stays
        });
    }

    /// Ends the exchanges of a worker that is going to be dropped.
    pub(crate) fn abandon(&self, listening: u32) {
        let abandoned: Vec<_> = {
            let exchanges = self.exchanges.borrow();
            exchanges.iter().filter(|(_, exchange)| exchange.listening == listening).map(|(slot, _)| *slot).collect()
        };
        self.outlived.borrow_mut().retain(|(of, _, slot)| {
            if *of == listening {
                self.push(Event::Aborted { slot: *slot });
            }
            *of != listening
        });
        // Before the engine drops its ends, which would say that the clients have left.
        for (number, _) in self.tunnels.borrow().iter().filter(|(_, tunnel)| tunnel.listening == listening) {
            self.push(Event::Tunnel { tunnel: *number, what: Told::Closed });
        }
        for slot in abandoned {
            let taken = self.with_exchange(slot, |exchange| (exchange.responder.take(), exchange.reads_on));
            let Some((responder, reads_on)) = taken else { continue };
            if responder.is_some() || reads_on {
                self.push(Event::Aborted { slot });
            }
            if let Some(responder) = responder {
                responder.abort();
            }
        }
    }

    /// Tells JavaScript what there is to tell, in one call, and carries out what it answers.
    pub(crate) fn deliver(self: &Rc<Self>) {
        let Some(dispatch) = self.dispatch.get() else { return };
        // A call inside of a call would write over what JavaScript is reading; the outer one goes on with it.
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
            // Where JavaScript was cut short, the next events must not find what belonged to these.
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
                Event::Request { slot, handler, has_content } => [0, slot as i32, handler as i32, has_content.into()],
                Event::Data { slot } if exchanges.contains_key(&slot) => [1, slot as i32, (!exchanges[&slot].has_content()).into(), 0],
                Event::Aborted { slot } if exchanges.contains_key(&slot) => [2, slot as i32, 0, 0],
                Event::Writable { slot } if exchanges.contains_key(&slot) => [3, slot as i32, 0, 0],
                Event::Connection { app, opened, remote } => {
                    self.remotes.borrow_mut().push_back(remote);
                    [4, app as i32, if opened { 1 } else { -1 }, 0]
                }
                Event::Released { listening } => [5, listening as i32, 0, 0],
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
                Event::Session { session, what, code, data } if self.sessions.borrow().contains_key(&session) => {
                    if what == session::CLOSED {
                        self.sessions.borrow_mut().remove(&session);
                    }
                    self.payloads.borrow_mut().push_back(data);
                    [9, session as i32, what, code as i32]
                }
                Event::Stream { stream, what, code, data } if self.streams.borrow().contains_key(&stream) => {
                    self.payloads.borrow_mut().push_back(data);
                    [10, stream as i32, what, code as i32]
                }
                Event::Tunnel { tunnel, what } if self.tunnels.borrow().contains_key(&tunnel) => {
                    let has_ended = what == Told::Readable && self.tunnels.borrow()[&tunnel].has_ended();
                    [11, tunnel as i32, what as i32, has_ended.into()]
                }
                // A stream that nobody will be told of.
                Event::Session { what, code, .. } if session::is_stream(what) => {
                    self.end_stream(code, 0);
                    continue;
                }
                // Of what has ended since.
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

/// Gives `value` a number that none of those has, and that is not given again soon.
fn add<T>(to: &RefCell<FxHashMap<u32, T>>, last: &Cell<u32>, value: T) -> u32 {
    let mut values = to.borrow_mut();
    loop {
        // Events carry it as a number with a sign.
        let number = (last.get() + 1) & (i32::MAX as u32);
        last.set(number);
        if let Entry::Vacant(place) = values.entry(number) {
            place.insert(value);
            return number;
        }
    }
}
