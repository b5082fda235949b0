//! The interface of request handlers.

use std::io;
use std::net::SocketAddr;

use crate::dispatch::ServeRequests;
use crate::{Request, Responder, Worker};

/// Answers the requests of a worker, on the worker's thread.
///
/// A response that is ready is sent at once through the [`Responder`] and costs no future. Work
/// that takes time goes into [`Responder::respond`], or the handler keeps the responder and uses it
/// later. Work that blocks belongs on another thread.
pub trait Handler: 'static {
    /// Called by [`Workers`](crate::Workers) inside its runtime, before the worker listens. Sets up
    /// what the handler needs of the worker, such as a [`Connector`](crate::Connector).
    ///
    /// # Errors
    ///
    /// Why the handler cannot answer requests. The workers then end with that error.
    fn start(&self, worker: &mut Worker) -> io::Result<()> {
        let _ = worker;
        Ok(())
    }

    /// Called for each request once its head has arrived.
    fn handle(&self, request: Request, responder: Responder);

    /// Called after requests were given to the handler, all that had arrived or some of many, and
    /// before anything is sent. A handler with a high cost per batch collects requests until then.
    /// Responses made here leave within the same turn.
    fn flush(&self) {}

    /// Called when a client has opened a connection, before the handshake.
    fn on_opened(&self, remote: SocketAddr) {
        let _ = remote;
    }

    /// Called when a connection has ended.
    fn on_closed(&self, remote: SocketAddr) {
        let _ = remote;
    }
}

impl<F: Fn(Request, Responder) + 'static> Handler for F {
    fn handle(&self, request: Request, responder: Responder) {
        self(request, responder);
    }
}

impl<H: Handler> ServeRequests for H {
    fn handle(&self, request: Request, responder: Responder) {
        Handler::handle(self, request, responder);
    }

    fn flush(&self) {
        Handler::flush(self);
    }

    fn on_opened(&self, remote: SocketAddr) {
        Handler::on_opened(self, remote);
    }

    fn on_closed(&self, remote: SocketAddr) {
        Handler::on_closed(self, remote);
    }
}
