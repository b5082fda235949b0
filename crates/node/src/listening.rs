//! An application, and the workers that listen for it.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Uri};
use pronghorn_engine::{Config, Handler, Identity, Policy, Request, Responder, Sessions, Stats, Transports, Upgrade, Worker};

use crate::addon::{Addon, Event};
use crate::certificates::Certificates;
use crate::clients;
use crate::js::Failure;
use crate::poll::Poll;
use crate::ports::{Share, Sharing, bind};
use crate::router::{Parameters, Router};

/// What JavaScript made with `App`, `SSLApp`, `H3App` or `Server`.
pub(crate) struct App {
    number: Cell<u32>,
    pub(crate) transports: Transports,
    pub(crate) config: RefCell<Config>,
    pub(crate) certificates: OnceCell<Arc<Certificates>>,
    identity: OnceCell<Identity>,
    /// The routes of each server name, and those of all others under the empty name.
    routers: RefCell<Vec<(String, Router)>>,
    /// The same for each [`Wish`], which go before.
    wish_routers: [RefCell<Vec<(String, Router)>>; 2],
    /// JavaScript wants to know of connections.
    pub(crate) filters: Cell<bool>,
    /// The numbers of what only it refers to, in the addon: its programs, and its kinds of WebSocket connections.
    pub(crate) programs: RefCell<Vec<usize>>,
    pub(crate) socket_kinds: RefCell<Vec<usize>>,
}

impl App {
    pub(crate) fn new(transports: Transports, config: Config) -> Self {
        Self {
            number: Cell::new(0),
            transports,
            config: RefCell::new(config),
            certificates: OnceCell::new(),
            identity: OnceCell::new(),
            routers: RefCell::new(vec![(String::new(), Router::default())]),
            wish_routers: Default::default(),
            filters: Cell::new(false),
            programs: RefCell::default(),
            socket_kinds: RefCell::default(),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number.get()
    }

    pub(crate) fn set_number(&self, number: u32) {
        self.number.set(number);
    }

    /// Adds or removes a route; see [`Router::set`]. `domain`: empty for all names that have no routes of their own.
    pub(crate) fn route(&self, domain: &str, method: Option<Method>, pattern: &str, handler: Option<u32>) {
        router(&mut self.routers.borrow_mut(), domain).set(method, pattern, handler);
    }

    /// Adds or removes a route for what wishes to go on in another protocol.
    pub(crate) fn wish_route(&self, wish: Wish, domain: &str, pattern: &str, handler: Option<u32>) {
        let mut routers = self.wish_routers[wish as usize].borrow_mut();
        // The one for all names stands first.
        router(&mut routers, "");
        router(&mut routers, domain).set(None, pattern, handler);
    }

    pub(crate) fn remove_domain(&self, domain: &str) {
        for routers in self.wish_routers.iter().chain([&self.routers]) {
            routers.borrow_mut().retain(|(name, _)| name.is_empty() || name != domain);
        }
    }

    /// The handler of match number `skip`. `wish`: what the request wishes, for which there are routes of their own.
    pub(crate) fn find(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        wish: Option<Wish>,
        mut skip: usize,
    ) -> Option<(u32, Parameters)> {
        let in_these = |routers: &[(String, Router)], skip: &mut usize| {
            let (_, router) = if routers.len() == 1 { &routers[0] } else { &routers[named(routers, uri, headers)] };
            router.find(method, uri.path(), skip)
        };
        if let Some(wish) = wish {
            let routers = self.wish_routers[wish as usize].borrow();
            if !routers.is_empty()
                && let Some(found) = in_these(&routers, &mut skip)
            {
                return Some(found);
            }
        }
        in_these(&self.routers.borrow(), &mut skip)
    }

    fn identity(&self) -> Result<Option<Identity>, Failure> {
        let Some(certificates) = self.certificates.get() else { return Ok(None) };
        if certificates.is_empty() {
            return Err("there is no certificate: give key_file_name and cert_file_name (or key and cert), or add server names".into());
        }
        if let Some(identity) = self.identity.get() {
            return Ok(Some(identity.clone()));
        }
        let sessions = Sessions::new(&self.config.borrow().limits);
        let policy = Policy { client_certificates: Some(certificates.clone()), ..Policy::default() };
        let identity = Identity::with_policy(certificates.clone(), &policy)?.with_sessions(sessions);
        Ok(Some(self.identity.get_or_init(|| identity).clone()))
    }
}

/// A protocol that JavaScript can go on in.
#[derive(Clone, Copy)]
pub(crate) enum Wish {
    Socket = 0,
    Session = 1,
}

impl Wish {
    /// What a request wishes, if it is one of these.
    pub(crate) fn of(upgrade: Option<&Upgrade>) -> Option<Self> {
        match upgrade?.protocol() {
            "websocket" => Some(Self::Socket),
            "webtransport" => Some(Self::Session),
            _ => None,
        }
    }
}

/// The routes of a server name, which are added if there are none.
fn router<'a>(routers: &'a mut Vec<(String, Router)>, domain: &str) -> &'a mut Router {
    let index = routers.iter().position(|(name, _)| name == domain).unwrap_or_else(|| {
        routers.push((domain.to_owned(), Router::default()));
        routers.len() - 1
    });
    &mut routers[index].1
}

/// The host that a request is for, in lower case.
pub(crate) fn host_of(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let from_field =
        || headers.get(http::header::HOST)?.to_str().ok()?.parse::<http::uri::Authority>().ok().map(|host| host.host().to_owned());
    let mut host = uri.host().map(str::to_owned).or_else(from_field)?;
    host.make_ascii_lowercase();
    Some(host)
}

/// The routes that the request's host has; `*.` stands for one label.
fn named(routers: &[(String, Router)], uri: &Uri, headers: &HeaderMap) -> usize {
    let Some(host) = host_of(uri, headers) else { return 0 };
    let position = |wanted: &str| routers.iter().position(|(name, _)| name == wanted);
    let wildcard = || position(&format!("*{}", &host[host.find('.')?..]));
    position(&host).or_else(wildcard).unwrap_or(0)
}

/// Which connections are to be closed by a worker that goes on.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Closing {
    /// Those on which no request is open.
    Idle,
    All,
}

/// How a worker is to end.
#[derive(Clone, Copy)]
pub(crate) enum Ending {
    /// No new connections; those there are go on.
    StopListening,
    /// What runs is finished within this time.
    ShutDown(Duration),
}

/// One worker, in the event loop.
pub(crate) struct Listening {
    number: u32,
    address: SocketAddr,
    addon: Rc<Addon>,
    worker: RefCell<Option<Running>>,
    /// Asked for while the worker's turn was running.
    asked: Cell<Option<Ending>>,
    /// The same for connections.
    asked_to_close: Cell<Option<Closing>>,
    stopped: Cell<bool>,
    draining: Cell<bool>,
    stats: Arc<Stats>,
}

struct Running {
    worker: Worker,
    poll: Poll,
    share: Share,
}

struct Server {
    addon: Rc<Addon>,
    app: Rc<App>,
    listening: u32,
}

impl Handler for Server {
    fn handle(&self, request: Request, responder: Responder) {
        if let Some(certificates) = self.app.certificates.get()
            && let Err(refusal) = clients::admit(certificates, &request.peer, &request.uri, &request.headers)
        {
            return responder.send(refusal.into());
        }
        self.addon.accept(request, responder, &self.app, self.listening);
    }

    fn settle(&self) {
        self.addon.deliver();
    }

    fn on_opened(&self, remote: SocketAddr) {
        if self.app.filters.get() {
            self.addon.push(Event::Connection { app: self.app.number(), opened: true, remote });
        }
    }

    fn on_closed(&self, remote: SocketAddr) {
        self.addon.on_closed(self.listening, remote);
        if self.app.filters.get() {
            self.addon.push(Event::Connection { app: self.app.number(), opened: false, remote });
        }
    }
}

impl Listening {
    /// Listens on `address` for `app`. Returns its number.
    ///
    /// # Errors
    ///
    /// When the address cannot be had, or there is no certificate where one is needed.
    pub(crate) fn start(addon: &Rc<Addon>, app: &Rc<App>, address: SocketAddr, sharing: Sharing) -> Result<u32, Failure> {
        let identity = app.identity()?;
        let (listener, group, share) = bind(address, app.transports, sharing)?;
        let address = listener.address();
        let number = addon.next_listening();
        let server = Server { addon: addon.clone(), app: app.clone(), listening: number };
        let mut worker = Worker::new(share.number, &group, app.config.borrow().clone(), server)?;
        for sockets in listener.into_sockets() {
            worker.listen(sockets, identity.as_ref())?;
        }
        let stats = group.stats_of(share.number).clone();
        let descriptor = worker.as_fd().as_raw_fd();
        let listening = Rc::new(Self {
            number,
            address,
            addon: addon.clone(),
            worker: RefCell::new(None),
            asked: Cell::new(None),
            asked_to_close: Cell::new(None),
            stopped: Cell::new(false),
            draining: Cell::new(false),
            stats,
        });
        let weak: Weak<Self> = Rc::downgrade(&listening);
        let on_readable = move || {
            if let Some(listening) = weak.upgrade() {
                listening.turn();
            }
        };
        let poll = Poll::new(addon.env, addon.poll_by_thread.get(), descriptor, Rc::new(on_readable))?;
        *listening.worker.borrow_mut() = Some(Running { worker, poll, share });
        addon.listenings.borrow_mut().insert(number, listening.clone());
        // The first turn registers with the kernel and arms the timer.
        listening.turn();
        Ok(number)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Ends it; [`Event::Released`] tells when it has ended.
    pub(crate) fn end(self: &Rc<Self>, ending: Ending) {
        // The hardest wins: what is asked for while the worker's turn runs, and what was asked for before.
        let harder = match (self.asked.get(), ending) {
            (Some(asked @ Ending::ShutDown(_)), Ending::StopListening) => asked,
            (Some(Ending::ShutDown(one)), Ending::ShutDown(other)) => Ending::ShutDown(one.min(other)),
            (_, ending) => ending,
        };
        self.asked.set(Some(harder));
        self.turn();
    }

    /// Closes connections; new ones are taken as before.
    pub(crate) fn close_connections(self: &Rc<Self>, which: Closing) {
        let asked = self.asked_to_close.get();
        self.asked_to_close.set(Some(asked.filter(|asked| *asked > which).unwrap_or(which)));
        self.turn();
    }

    pub(crate) fn set_referenced(&self, referenced: bool) {
        if let Ok(worker) = self.worker.try_borrow()
            && let Some(running) = &*worker
        {
            running.poll.set_referenced(referenced);
        }
    }

    /// Does what is ready, and what was asked for.
    fn turn(self: &Rc<Self>) {
        let finished = {
            // From inside of the worker's own turn: JavaScript has called, and what it asked for is done when the turn is over.
            let Ok(mut running) = self.worker.try_borrow_mut() else { return };
            let Some(Running { worker, share, .. }) = running.as_mut() else { return };
            loop {
                let now = Instant::now();
                match self.asked.take() {
                    Some(Ending::StopListening) => {
                        worker.stop_listening();
                        share.leave();
                        self.stopped.set(true);
                    }
                    // Out of patience with what is being finished.
                    Some(Ending::ShutDown(grace)) if grace.is_zero() && self.draining.get() => break true,
                    Some(Ending::ShutDown(grace)) => {
                        worker.shut_down(now, grace);
                        share.leave();
                        self.draining.set(true);
                    }
                    None => {}
                }
                match self.asked_to_close.take() {
                    Some(Closing::Idle) => worker.close_idle_connections(now),
                    Some(Closing::All) => worker.close_connections(now),
                    None => {}
                }
                if let Err(error) = worker.turn(now) {
                    eprintln!("pronghorn: the listener on {} ends, because its poller failed: {error}", self.address);
                    break true;
                }
                if self.asked.get().is_none() && self.asked_to_close.get().is_none() {
                    break worker.is_finished() || (self.stopped.get() && worker.is_idle());
                }
            }
        };
        if finished {
            self.release();
        }
        // What sending brought, and what came of the release.
        self.addon.deliver();
    }

    /// Ends all at once. Requests that JavaScript has not answered are reported as aborted.
    pub(crate) fn release(self: &Rc<Self>) {
        // The process is left from inside of a handler: the kernel cleans up.
        let Ok(mut running) = self.worker.try_borrow_mut() else { return };
        let Some(Running { worker, poll, share }) = running.take() else { return };
        drop(running);
        self.addon.abandon(self.number);
        // The loop must not watch a descriptor that is closed.
        drop(poll);
        drop(worker);
        drop(share);
        self.addon.listenings.borrow_mut().remove(&self.number);
        self.addon.push(Event::Released { listening: self.number });
    }
}
