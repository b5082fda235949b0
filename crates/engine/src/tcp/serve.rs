//! The phases of an accepted connection: TLS, choosing the protocol, and serving it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use http::HeaderValue;
use tokio::io::AsyncWrite;

use super::connected::{Connected, Outcome};
use super::stream::TcpStream;
use super::tls::TlsStream;
use super::{clear_text, prior_knowledge};
use crate::dispatch::Dispatcher;
use crate::http1::serve as serve_http1;
use crate::http2::serve as serve_http2;
use crate::message::{Peer, Protocol};
use crate::shutdown::{HANDSHAKE_SHUTDOWN_DELAY, ShutdownNotice};
use crate::tls::{ACME_TLS, ListenerTls};

pub(super) async fn serve_tls(
    stream: TcpStream,
    tls: ListenerTls,
    peer: Peer,
    alt_svc: Option<HeaderValue>,
    dispatcher: Rc<Dispatcher>,
) -> Outcome {
    let context = dispatcher.context.clone();
    let activity = stream.activity().clone();
    let path = stream.path();
    // The futures of the phases are boxed, so that a connection allocates only what its current
    // phase needs.
    let mut handshake =
        Box::pin(TlsStream::accept(stream, tls, &context.config.limits, context.stats.clone()));
    let mut timeout = pin!(context.handle.sleep(context.config.limits.handshake_timeout()));
    let mut shutdown = ShutdownNotice::new(&context.shutdown);
    let io = poll_fn(|cx| match handshake.as_mut().poll(cx) {
        Poll::Ready(accepted) => Poll::Ready(Ok(accepted)),
        Poll::Pending
            if shutdown.poll_after(cx, HANDSHAKE_SHUTDOWN_DELAY, &context.handle).is_ready() =>
        {
            Poll::Ready(Err(Outcome::Done))
        }
        Poll::Pending => timeout.as_mut().poll(cx).map(|()| {
            context.stats.handshakes_timed_out.add(1);
            Err(Outcome::TimedOut)
        }),
    })
    .await;
    drop(handshake);
    let io = match io {
        Ok(Ok(io)) => io,
        Ok(Err(None)) => return Outcome::TlsFailed,
        Ok(Err(Some((mut io, request)))) => {
            Box::pin(clear_text::refuse(io.io(), request, &context)).await;
            return Outcome::TlsFailed;
        }
        Err(outcome) => return outcome,
    };
    if io.alpn_protocol() == Some(ACME_TLS) {
        // The client wanted only the certificate. RFC 8737, section 3: no data is exchanged.
        let mut io = io;
        let mut closed = pin!(poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)));
        poll_fn(|cx| {
            if closed.as_mut().poll(cx).is_ready() {
                Poll::Ready(())
            } else {
                timeout.as_mut().poll(cx)
            }
        })
        .await;
        return Outcome::Done;
    }
    let handshake = io.progress().clone();
    let is_http2 = io.alpn_protocol() == Some(b"h2");
    let protocol = if is_http2 { Protocol::Http2 } else { Protocol::Http1 };
    let server_name = io.server_name().map(Arc::from);
    let peer = Peer {
        protocol,
        tls: io.parameters(),
        server_name,
        client_certificate: io.client_certificate(),
        ..peer
    };
    let connected = Connected { peer, handshake: Some(handshake.clone()), path };
    let mut serve: Pin<Box<dyn Future<Output = Outcome>>> = if is_http2 {
        Box::pin(serve_http2(io, connected, alt_svc, activity, dispatcher))
    } else {
        Box::pin(serve_http1(io, connected, alt_svc, activity, dispatcher))
    };
    // A client that sends early data must still complete the handshake in time.
    poll_fn(|cx| match serve.as_mut().poll(cx) {
        Poll::Pending if handshake.summary().is_none() => timeout.as_mut().poll(cx).map(|()| {
            context.stats.handshakes_timed_out.add(1);
            Outcome::TimedOut
        }),
        outcome => outcome,
    })
    .await
}

pub(super) async fn serve_clear(
    stream: TcpStream,
    peer: Peer,
    alt_svc: Option<HeaderValue>,
    dispatcher: Rc<Dispatcher>,
) -> Outcome {
    let context = dispatcher.context.clone();
    let activity = stream.activity().clone();
    let path = stream.path();
    if context.config.http2_prior_knowledge {
        match Box::pin(prior_knowledge::is_http2(&stream, &context)).await {
            Ok(false) => {}
            Ok(true) => {
                let peer = Peer { protocol: Protocol::Http2, ..peer };
                // Boxed, so that an HTTP/1.1 connection does not allocate space for it.
                return Box::pin(serve_http2(
                    stream,
                    Connected { peer, handshake: None, path },
                    alt_svc,
                    activity,
                    dispatcher,
                ))
                .await;
            }
            Err(outcome) => return outcome,
        }
    }
    serve_http1(stream, Connected { peer, handshake: None, path }, alt_svc, activity, dispatcher)
        .await
}
