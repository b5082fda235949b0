//! What JavaScript does with WebTransport sessions and their streams.

use std::rc::Rc;

use http::Method;
use pronghorn_engine::{Request, WebTransport};

use crate::exchange::Asked;
use crate::js::{Call, Failure, Native, Value};
use crate::listening::Wish;
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

/// `sessionRoute(app, domain, pattern, handler or undefined)`. What listens later offers sessions.
fn session_route(call: &Call<'_>) -> Result<Value, Failure> {
    let app = call.addon.app(call.u32(0))?;
    app.config.borrow_mut().webtransport = true;
    app.wish_route(Wish::Session, &call.string(1)?, &call.string(2)?, (!call.is_absent(3)).then(|| call.u32(3)));
    Ok(call.env.undefined())
}

/// `acceptSession(slot)`: the number of the session, or why it was refused, which answers the request.
fn accept_session(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    let asked = call.addon.take_upgrade(call.u32(0)).ok_or("the request asks for no session, or was answered")?;
    let Asked { responder, peer, upgrade, body, fields, headers, uri } = asked;
    let request = Request { method: Method::CONNECT, uri, headers, peer, upgrade: Some(upgrade), body };
    let Some(session) = WebTransport::accept(request, responder, fields) else {
        return Ok(call.env.string("there are no sessions on this connection: call app.wt() before app.listen(), and use H3App or Server"));
    };
    let number = call.addon.add_session(session.clone());
    session::run(call.addon, number, &session);
    Ok(call.env.number(number.into()))
}

/// `sessionSendDatagram(session, content)`: whether it may arrive.
fn send_datagram(call: &Call<'_>) -> Result<Value, Failure> {
    let data = call.bytes(1)?;
    Ok(call.env.boolean(session(call).is_some_and(|session| session.send_datagram(data).is_ok())))
}

/// `sessionMaxDatagram(session)`: bytes, 0 if the peer takes none.
fn max_datagram(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call.env.number(session(call).and_then(|session| session.max_datagram_size()).unwrap_or(0) as f64))
}

/// `sessionOpen(session, unidirectional)`: the number of a stream.
fn open(call: &Call<'_>) -> Result<Value, Failure> {
    let session = session(call).ok_or("the session has ended")?;
    Ok(call.env.number(session::open(call.addon, &session, call.boolean(1)).into()))
}

/// `sessionClose(session, code, reason)`.
fn close(call: &Call<'_>) -> Result<Value, Failure> {
    let reason = call.string(2)?;
    let ended = call.addon.sessions.borrow_mut().remove(&call.u32(0));
    if let Some(session) = ended {
        session.close(call.u32(1), &reason);
    }
    Ok(call.env.undefined())
}

/// `sessionDrain(session)`.
fn drain(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(session) = session(call) {
        session.drain();
    }
    Ok(call.env.undefined())
}

/// `streamRead(stream)`: an event brings the next piece.
fn read(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(stream) = stream(call) {
        stream.receiving.give(Receive::Read);
    }
    Ok(call.env.undefined())
}

/// `streamWrite(stream, content)`: an event tells when there is room for more.
fn write(call: &Call<'_>) -> Result<Value, Failure> {
    let data = call.bytes(1)?;
    if let Some(stream) = stream(call) {
        stream.sending.give(Send::Write(data));
    }
    Ok(call.env.undefined())
}

/// `streamFinish(stream)`: nothing more is sent.
fn finish(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(stream) = stream(call) {
        stream.sending.give(Send::Finish);
    }
    Ok(call.env.undefined())
}

/// `streamEnd(stream, code)`: JavaScript is done with it; what has not ended yet is reset and stopped.
fn end(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.end_stream(call.u32(0), call.u32(1));
    Ok(call.env.undefined())
}

/// `openStreams()`: how many streams somebody looks after.
fn open_streams(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call.env.number(call.addon.open_streams() as f64))
}
