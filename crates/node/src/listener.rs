//! Workers that listen for an application.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pronghorn_engine::{Handler, Request, Responder, Stats, Worker};

use crate::addon::Addon;
use crate::admission;
use crate::app::App;
use crate::events::{Event, Events as _};
use crate::js::Failure;
use crate::poll::Poll;
use crate::ports::{Share, Sharing, bind};

/// Which connections a running worker closes.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Closing {
    /// Connections without an open request.
    Idle,
    All,
}

/// How a worker ends.
#[derive(Clone, Copy)]
pub(crate) enum Shutdown {
    /// Stops accepting connections. Open ones continue.
    StopListening,
    /// Finishes open requests within this time.
    Graceful(Duration),
}

/// One worker in the event loop.
pub(crate) struct Listener {
    number: u32,
    address: SocketAddr,
    addon: Rc<Addon>,
    worker: RefCell<Option<Running>>,
    /// Requested while the worker's turn was running.
    asked: Cell<Option<Shutdown>>,
    /// Connections to close, requested while the worker's turn was running.
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
    listener: u32,
}

impl Handler for Server {
    fn handle(&self, request: Request, responder: Responder) {
        if let Some(certificates) = self.app.certificates.get()
            && let Err(refusal) =
                admission::admit(certificates, &request.peer, &request.uri, &request.headers)
        {
            return responder.send(refusal.into());
        }
        self.addon.accept(request, responder, &self.app, self.listener);
    }

    fn flush(&self) {
        self.addon.deliver();
    }

    fn on_opened(&self, remote: SocketAddr) {
        if self.app.filters.get() {
            self.addon.push(Event::Connection { app: self.app.number(), opened: true, remote });
        }
    }

    fn on_closed(&self, remote: SocketAddr) {
        self.addon.on_closed(self.listener, remote);
        if self.app.filters.get() {
            self.addon.push(Event::Connection { app: self.app.number(), opened: false, remote });
        }
    }
}

impl Listener {
    /// Listens on `address` for `app`. Returns the listener's number.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or a required certificate is missing.
    pub(crate) fn start(
        addon: &Rc<Addon>,
        app: &Rc<App>,
        address: SocketAddr,
        sharing: Sharing,
    ) -> Result<u32, Failure> {
        let identity = app.identity()?;
        let (bound, group, share) = bind(address, app.transports, sharing)?;
        let address = bound.address();
        let number = addon.next_listener();
        let server = Server { addon: addon.clone(), app: app.clone(), listener: number };
        let mut worker = Worker::new(share.number, &group, app.config.borrow().clone(), server)?;
        for sockets in bound.into_sockets() {
            worker.listen(sockets, identity.as_ref())?;
        }
        let stats = group.stats_of(share.number).clone();
        let descriptor = worker.as_fd().as_raw_fd();
        let listener = Rc::new(Self {
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
        let weak: Weak<Self> = Rc::downgrade(&listener);
        let on_readable = move || {
            if let Some(listener) = weak.upgrade() {
                listener.turn();
            }
        };
        let poll =
            Poll::new(addon.env, addon.poll_by_thread.get(), descriptor, Rc::new(on_readable))?;
        *listener.worker.borrow_mut() = Some(Running { worker, poll, share });
        addon.listeners.borrow_mut().insert(number, listener.clone());
        // The first turn registers with the kernel and arms the timer.
        listener.turn();
        Ok(number)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Ends the listener. [`Event::Released`] follows when it has ended.
    pub(crate) fn end(self: &Rc<Self>, ending: Shutdown) {
        // The strictest of the pending requests wins.
        let harder = match (self.asked.get(), ending) {
            (Some(asked @ Shutdown::Graceful(_)), Shutdown::StopListening) => asked,
            (Some(Shutdown::Graceful(one)), Shutdown::Graceful(other)) => {
                Shutdown::Graceful(one.min(other))
            }
            (_, ending) => ending,
        };
        self.asked.set(Some(harder));
        self.turn();
    }

    /// Closes connections. New ones are still accepted.
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

    /// Runs a turn of the worker, and applies pending requests.
    fn turn(self: &Rc<Self>) {
        let finished = {
            // Called by JavaScript within the worker's own turn: pending requests are applied when
            // the turn is over.
            let Ok(mut running) = self.worker.try_borrow_mut() else { return };
            let Some(Running { worker, share, .. }) = running.as_mut() else { return };
            loop {
                let now = Instant::now();
                match self.asked.take() {
                    Some(Shutdown::StopListening) => {
                        worker.stop_listening();
                        share.leave();
                        self.stopped.set(true);
                    }
                    // Stop waiting for requests that are being finished.
                    Some(Shutdown::Graceful(grace)) if grace.is_zero() && self.draining.get() => {
                        break true;
                    }
                    Some(Shutdown::Graceful(grace)) => {
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
                    eprintln!(
                        "pronghorn: the listener on {} stopped: its poller failed: {error}",
                        self.address
                    );
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
        // Events caused by sending, and by the release.
        self.addon.deliver();
    }

    /// Ends the listener at once. Requests that JavaScript has not answered are reported as
    /// aborted.
    pub(crate) fn release(self: &Rc<Self>) {
        // The process exits within a handler: the kernel cleans up.
        let Ok(mut running) = self.worker.try_borrow_mut() else { return };
        let Some(Running { worker, poll, share }) = running.take() else { return };
        drop(running);
        self.addon.abandon(self.number);
        // The loop must not watch a closed descriptor.
        drop(poll);
        drop(worker);
        drop(share);
        self.addon.listeners.borrow_mut().remove(&self.number);
        self.addon.push(Event::Released { listener: self.number });
    }
}
