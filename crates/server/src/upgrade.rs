//! Requests that upgrade to another protocol, such as WebSocket.
//!
//! Applications expect a `hyper::upgrade::OnUpgrade`, which only hyper can create. So hyper serves
//! an in-memory connection with a single request. The application receives the upgrade of that
//! request, and hyper sends 101 once the application has accepted. From then on, bytes are copied
//! between that connection and the engine's tunnel.

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

use crate::departure::unless_closed;
use crate::pipe::{ApplicationEnd, TunnelEnd, pipe, while_handing_over};

/// The request that hyper receives in memory. The application sees the client's request instead.
const REQUEST: &[u8] =
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: tunnel\r\n\r\n";

/// An upgrade request.
pub(crate) struct UpgradeRequest {
    pub(crate) upgrade: Upgrade,
    pub(crate) protocol: Protocol,
    /// Bytes that the client sends after a successful upgrade.
    pub(crate) incoming: Incoming,
}

/// Adds the upgrade to the request's extensions, in the form that applications expect.
pub(crate) fn insert_upgrade<B>(
    request: &mut http::Request<B>,
    upgrade_request: &UpgradeRequest,
    on_upgrade: OnUpgrade,
) {
    let extensions = request.extensions_mut();
    extensions.insert(on_upgrade);
    if upgrade_request.protocol != Protocol::Http1 {
        extensions.insert(hyper::ext::Protocol::from(upgrade_request.upgrade.protocol()));
    }
}

/// Waits for `answer`. If the response accepts the upgrade, starts the tunnel, otherwise sends the
/// response. The answer is dropped when the client leaves.
pub(crate) async fn run<F>(
    request: UpgradeRequest,
    mut responder: Responder,
    answer: impl FnOnce(&UpgradeRequest, OnUpgrade) -> F,
) where
    F: Future<Output = Response>,
{
    let handle = responder.handle().clone();
    let Some(InMemoryConnection { near, on_upgrade, grant, handed_over }) = open(&handle).await
    else {
        return;
    };
    let mut unused = UnusedConnection(Some(near.clone()));
    let Some(response) = unless_closed(&mut responder, answer(&request, on_upgrade)).await else {
        return;
    };
    let is_granted = match request.protocol {
        Protocol::Http1 => response.status == StatusCode::SWITCHING_PROTOCOLS,
        Protocol::Http2 | Protocol::Http3 => response.status.is_success(),
    };
    if !is_granted {
        return responder.send(response);
    }
    // The task that awaits the upgrade receives it now.
    let _ = grant.send(());
    let _ = handed_over.await;
    if near.is_unclaimed() {
        // The service ignored the upgrade, for example because it answers every request with 200.
        // The client would take any success, or 101 over HTTP/1.1, for an open tunnel. RFC 9220,
        // section 3: 501 says that the protocol is not supported.
        return responder.send(Response::new(StatusCode::NOT_IMPLEMENTED));
    }
    let Some(first) = skip_head(&near).await else { return };
    unused.0 = None;
    let outgoing =
        Outgoing { first: Some(first).filter(|first| !first.is_empty()), near: near.clone() };
    responder.upgrade(response.headers, Body::stream(outgoing));
    handle.spawn(copy_incoming(request.incoming, near));
}

/// Ends an unused in-memory connection when dropped. hyper would otherwise wait for another request
/// forever.
struct UnusedConnection(Option<TunnelEnd>);

impl Drop for UnusedConnection {
    fn drop(&mut self) {
        if let Some(near) = self.0.take() {
            near.end();
            near.refuse();
        }
    }
}

/// An in-memory connection served by hyper.
struct InMemoryConnection {
    /// The tunnel's end.
    near: TunnelEnd,
    /// The upgrade of the connection's only request.
    on_upgrade: OnUpgrade,
    /// Accepts the upgrade.
    grant: oneshot::Sender<()>,
    /// Closes when hyper has handed the other end over, or no application claimed it.
    handed_over: oneshot::Receiver<Infallible>,
}

async fn open(handle: &Handle) -> Option<InMemoryConnection> {
    let (near, far) = pipe();
    let (give, given) = oneshot::channel();
    let (grant, granted) = oneshot::channel();
    let (handing_over, handed_over) = oneshot::channel();
    near.push(Bytes::from_static(REQUEST));
    handle.spawn(async move {
        let _handing_over = handing_over;
        serve(far, give, granted).await;
    });
    Some(InMemoryConnection { near, on_upgrade: given.await.ok()?, grant, handed_over })
}

async fn serve(
    far: ApplicationEnd,
    give: oneshot::Sender<OnUpgrade>,
    granted: oneshot::Receiver<()>,
) {
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
    // The connection ends with the upgrade or with the application's refusal: there is no second
    // request.
    let mut serving = pin!(
        http1::Builder::new().keep_alive(false).serve_connection(far, service).with_upgrades()
    );
    let _ = poll_fn(|cx| while_handing_over(|| serving.as_mut().poll(cx))).await;
}

/// Removes hyper's 101 head and returns the bytes that the application sent after it. `None` if
/// there is no 101.
async fn skip_head(near: &TunnelEnd) -> Option<Bytes> {
    const END: &[u8] = b"\r\n\r\n";
    let mut sent = BytesMut::new();
    loop {
        sent.extend_from_slice(&poll_fn(|cx| near.poll_pull(cx)).await?.ok()?);
        if let Some(end) = sent.windows(END.len()).position(|bytes| bytes == END) {
            return Some(sent.split_off(end + END.len()).freeze());
        }
    }
}

/// The bytes that the application sends, as a body.
struct Outgoing {
    first: Option<Bytes>,
    near: TunnelEnd,
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
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

/// Passes the peer's bytes to the application until either side ends.
async fn copy_incoming(mut incoming: Incoming, near: TunnelEnd) {
    loop {
        let frame = poll_fn(|cx| {
            if !ready!(near.poll_writable(cx)) {
                return Poll::Ready(None);
            }
            Pin::new(&mut incoming).poll_frame(cx).map(Some)
        });
        match frame.await {
            // The application dropped its end.
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
                // Keep `incoming` until the application has ended its own direction: dropping it
                // earlier would end the whole tunnel.
                poll_fn(|cx| near.poll_gone(cx)).await;
                return;
            }
            // The peer reset the stream, or its connection was lost: the data may be incomplete.
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
        let unused = UnusedConnection(Some(near.clone()));
        let refused = async move {
            // Kept until the end, as an application may do.
            let on_upgrade = given.await.unwrap();
            drop((grant, unused));
            poll_fn(|cx| near.poll_gone(cx)).await;
            drop(on_upgrade);
        };
        tokio::join!(refused, serve(far, give, granted));
    }
}
