//! Functions for WebTransport sessions and their streams.

use std::rc::Rc;

use http::Method;
use pronghorn_engine::{Request, WebTransport};

use crate::addon::{Call, Native};
use crate::app::UpgradeKind;
use crate::exchange::UpgradeRequest;
use crate::js::{Failure, Value};
use crate::session::{self, Receive, Send, Stream};

pub(super) const FUNCTIONS: [(&str, Native); 12] = [
    ("sessionRoute", session_route),
    ("acceptSession", accept_session),
    ("sessionSendDatagram", send_datagram),
    ("sessionMaxDatagram", max_datagram),
    ("sessionOpen", open),
    ("sessionClose", close),
    ("sessionDrain", drain),
    ("streamRead", read),
    ("streamWrite", write),
    ("streamFinish", finish),
    ("streamEnd", end),
    ("openStreams", open_streams),
];

fn session(call: &Call<'_>) -> Option<WebTransport> {
    call.addon.sessions.borrow().get(&call.u32(0)).cloned()
}

fn stream(call: &Call<'_>) -> Option<Rc<Stream>> {
    call.addon.streams.borrow().get(&call.u32(0)).cloned()
}

/// `sessionRoute(app, domain, pattern, handler or undefined)`: sets or removes a route. Later
/// listeners offer sessions.
fn session_route(call: &Call<'_>) -> Result<Value, Failure> {
    let app = call.addon.app(call.u32(0))?;
    app.config.borrow_mut().webtransport = true;
    app.upgrade_route(
        UpgradeKind::Session,
        &call.string(1)?,
        &call.string(2)?,
        (!call.is_absent(3)).then(|| call.u32(3)),
    );
    Ok(call.env.undefined())
}

/// `acceptSession(slot)`: returns the number of the session, or the reason why it was refused,
/// which answers the request.
fn accept_session(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    let asked = call
        .addon
        .take_upgrade(call.u32(0))
        .ok_or("the request does not ask for a WebTransport session, or was answered already")?;
    let UpgradeRequest { responder, peer, upgrade, body, fields, headers, uri } = asked;
    let request =
        Request { method: Method::CONNECT, uri, headers, peer, upgrade: Some(upgrade), body };
    let Some(session) = WebTransport::accept(request, responder, fields) else {
        return Ok(call.env.string(
            "this connection does not support WebTransport: call app.wt() before app.listen(), and \
            use H3App or Server",
        ));
    };
    let number = call.addon.add_session(session.clone());
    session::run(call.addon.clone(), number, &session);
    Ok(call.env.number(number.into()))
}

/// `sessionSendDatagram(session, content)`: returns whether the datagram was sent.
fn send_datagram(call: &Call<'_>) -> Result<Value, Failure> {
    let data = call.bytes(1)?;
    Ok(call.env.boolean(session(call).is_some_and(|session| session.send_datagram(data).is_ok())))
}

/// `sessionMaxDatagram(session)`: returns the maximum size in bytes, 0 if the peer accepts none.
fn max_datagram(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call
        .env
        .number(session(call).and_then(|session| session.max_datagram_size()).unwrap_or(0) as f64))
}

/// `sessionOpen(session, unidirectional)`: returns the number of a new stream.
fn open(call: &Call<'_>) -> Result<Value, Failure> {
    let session = session(call).ok_or("the session has ended")?;
    Ok(call.env.number(session::open(call.addon.clone(), &session, call.boolean(1)).into()))
}

/// `sessionClose(session, code, reason)`: closes a session.
fn close(call: &Call<'_>) -> Result<Value, Failure> {
    let reason = call.string(2)?;
    let ended = call.addon.sessions.borrow_mut().remove(&call.u32(0));
    if let Some(session) = ended {
        session.close(call.u32(1), &reason);
    }
    Ok(call.env.undefined())
}

/// `sessionDrain(session)`: asks the peer to end the session.
fn drain(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(session) = session(call) {
        session.drain();
    }
    Ok(call.env.undefined())
}

/// `streamRead(stream)`: requests the next piece, which an event delivers.
fn read(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(stream) = stream(call) {
        stream.receiving.give(Receive::Read);
    }
    Ok(call.env.undefined())
}

/// `streamWrite(stream, content)`: sends a piece. An event reports capacity for more.
fn write(call: &Call<'_>) -> Result<Value, Failure> {
    let data = call.bytes(1)?;
    if let Some(stream) = stream(call) {
        stream.sending.give(Send::Write(data));
    }
    Ok(call.env.undefined())
}

/// `streamFinish(stream)`: ends the sending direction.
fn finish(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(stream) = stream(call) {
        stream.sending.give(Send::Finish);
    }
    Ok(call.env.undefined())
}

/// `streamEnd(stream, code)`: ends a stream for JavaScript: open directions are reset and stopped.
fn end(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.end_stream(call.u32(0), call.u32(1));
    Ok(call.env.undefined())
}

/// `openStreams()`: returns the number of streams that JavaScript or a future holds.
fn open_streams(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call.env.number(call.addon.open_streams() as f64))
}
