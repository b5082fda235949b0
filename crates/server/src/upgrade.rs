//! Requests that go on in another protocol, such as WebSocket.
//!
//! What applications wait for is `hyper::upgrade::OnUpgrade`, which nobody but hyper can make. So hyper serves a connection in memory:
//! one request, whose upgrade is the one that the application gets, and 101 when the application has granted it. What is said from there
//! on goes through, between that connection and the tunnel of the engine.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::{Body as _, Frame};
use hyper::body::Incoming as HyperIncoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use pronghorn_engine::{Body, Handle, Incoming, Protocol, Responder, Response, Upgrade};
use tokio::sync::oneshot;

use crate::handler::unless_closed;
use crate::pipe::{Far, Near, pipe, while_handing_over};

/// What hyper is asked in memory. The application sees the request that came.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: tunnel\r\n\r\n";

/// A request that may be upgraded.
pub(crate) struct Asked {
    pub(crate) upgrade: Upgrade,
    pub(crate) protocol: Protocol,
    /// What the client sends if it is granted.
    pub(crate) incoming: Incoming,
}

/// Tells the application of the upgrade that is asked for, in the way that it expects.
pub(crate) fn announce<B>(request: &mut http::Request<B>, asked: &Asked, on_upgrade: OnUpgrade) {
    let extensions = request.extensions_mut();
    extensions.insert(on_upgrade);
    if asked.protocol != Protocol::Http1 {
        extensions.insert(hyper::ext::Protocol::from(asked.upgrade.protocol()));
    }
}

/// Answers with what `answer` says, and carries on if that is an upgrade. It is dropped when the client leaves.
pub(crate) async fn run<F>(asked: Asked, mut responder: Responder, answer: impl FnOnce(&Asked, OnUpgrade) -> F)
where
    F: Future<Output = Response>,
{
    let handle = responder.handle().clone();
    let Some(Opened { near, on_upgrade, grant, handed_over }) = open(&handle).await else { return };
    let mut unused = Unused(Some(near.clone()));
    let Some(response) = unless_closed(&mut responder, answer(&asked, on_upgrade)).await else { return };
    let is_granted = match asked.protocol {
        Protocol::Http1 => response.status == StatusCode::SWITCHING_PROTOCOLS,
        Protocol::Http2 | Protocol::Http3 => response.status.is_success(),
    };
    if !is_granted {
        return responder.send(response);
    }
    // Who waits for the upgrade gets it now.
    let _ = grant.send(());
    let _ = handed_over.await;
    if near.is_unclaimed() {
        // The service knows nothing of the upgrade, such as one that answers every request with 200. To the client any success, or 101 over
        // HTTP/1.1, would be an open tunnel. RFC 9220, section 3: 501 says that the protocol is not supported.
        return responder.send(Response::new(StatusCode::NOT_IMPLEMENTED));
    }
    let Some(first) = skip_head(&near).await else { return };
    unused.0 = None;
    let outgoing = Outgoing { first: Some(first).filter(|first| !first.is_empty()), near: near.clone() };
    responder.upgrade(response.headers, Body::stream(outgoing));
    handle.spawn(carry(asked.incoming, near));
}

/// A connection of hyper's in memory that comes to nothing if this is dropped: nobody would end it, as hyper waits for another request.
struct Unused(Option<Near>);

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(near) = self.0.take() {
            near.end();
            near.refuse();
        }
    }
}

/// A connection of hyper's in memory.
struct Opened {
    /// This end of it.
    near: Near,
    /// The upgrade of its one request.
    on_upgrade: OnUpgrade,
    /// What grants it.
    grant: oneshot::Sender<()>,
    /// Ends when hyper has handed the other end over, or has found nobody to take it.
    handed_over: oneshot::Receiver<Infallible>,
}

async fn open(handle: &Handle) -> Option<Opened> {
    let (near, far) = pipe();
    let (give, given) = oneshot::channel();
    let (grant, granted) = oneshot::channel();
    let (handing_over, handed_over) = oneshot::channel();
    near.push(Bytes::from_static(REQUEST));
    handle.spawn(async move {
        let _handing_over = handing_over;
        serve(far, give, granted).await;
    });
    Some(Opened { near, on_upgrade: given.await.ok()?, grant, handed_over })
}

async fn serve(far: Far, give: oneshot::Sender<OnUpgrade>, granted: oneshot::Receiver<()>) {
    let once = Cell::new(Some((give, granted)));
    let service = service_fn(|mut request: hyper::Request<HyperIncoming>| {
        let once = once.take();
        async move {
            let mut response = http::Response::new(String::new());
            if let Some((give, granted)) = once {
                let _ = give.send(hyper::upgrade::on(&mut request));
                if granted.await.is_ok() {
                    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                }
            }
            Ok::<_, Infallible>(response)
        }
    });
    // It ends with the upgrade, or with the application's refusal: no other request will come.
    let mut serving = pin!(http1::Builder::new().keep_alive(false).serve_connection(far, service).with_upgrades());
    let _ = poll_fn(|cx| while_handing_over(|| serving.as_mut().poll(cx))).await;
}

/// Takes hyper's 101 off the connection and returns what the application has sent behind it. `None` if there is no 101.
async fn skip_head(near: &Near) -> Option<Bytes> {
    const END: &[u8] = b"\r\n\r\n";
    let mut sent = BytesMut::new();
    loop {
        sent.extend_from_slice(&poll_fn(|cx| near.poll_pull(cx)).await?.ok()?);
        if let Some(end) = sent.windows(END.len()).position(|bytes| bytes == END) {
            return Some(sent.split_off(end + END.len()).freeze());
        }
    }
}

/// What the application sends.
struct Outgoing {
    first: Option<Bytes>,
    near: Near,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        Poll::Ready(ready!(self.near.poll_pull(cx)).map(|data| data.map(Frame::data)))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.near.refuse();
    }
}

/// Hands the application what the peer sends, until one of them has ended that.
async fn carry(mut incoming: Incoming, near: Near) {
    loop {
        let frame = poll_fn(|cx| {
            if !ready!(near.poll_room(cx)) {
                return Poll::Ready(None);
            }
            Pin::new(&mut incoming).poll_frame(cx).map(Some)
        });
        match frame.await {
            // The application is gone.
            None => return,
            Some(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data()
                    && !data.is_empty()
                {
                    near.push(data);
                }
            }
            Some(None) => {
                near.end();
                // Held until the application has ended its own direction: dropped, it would end the whole tunnel with that.
                poll_fn(|cx| near.poll_gone(cx)).await;
                return;
            }
            // Reset by the peer, or lost with its connection: what has come may be the half of it.
            Some(Some(Err(_))) => return near.fail(io::ErrorKind::ConnectionReset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_in_memory_ends_when_the_upgrade_is_refused() {
        let (near, far) = pipe();
        let (give, given) = oneshot::channel();
        let (grant, granted) = oneshot::channel();
        near.push(Bytes::from_static(REQUEST));
        let unused = Unused(Some(near.clone()));
        let refused = async move {
            // Kept until the end, as an application may.
            let on_upgrade = given.await.unwrap();
            drop((grant, unused));
            poll_fn(|cx| near.poll_gone(cx)).await;
            drop(on_upgrade);
        };
        tokio::join!(refused, serve(far, give, granted));
    }
}
