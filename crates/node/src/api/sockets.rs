//! Functions for WebSocket connections. The first argument of each is the connection's number,
//! unless noted.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    HeaderName, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION,
};
use http::{HeaderMap, HeaderValue, Method, Uri};
use pronghorn_engine::Request;
use pronghorn_engine::websocket::{
    self, CloseCode, CloseReason, Fragment, Message, Options, Prepared, WebSocketUpgrade, deflate,
};

use crate::addon::{Call, Native};
use crate::app::UpgradeKind;
use crate::exchange::UpgradeRequest;
use crate::js::{Failure, Value};
use crate::socket::{Driver, Kind, Outcome, Socket};

pub(super) const FUNCTIONS: [(&str, Native); 11] = [
    ("socketRoute", socket_route),
    ("socketKind", socket_kind),
    ("upgrade", upgrade),
    ("nextPayload", next_payload),
    ("socketSend", send),
    ("socketSendFragment", send_fragment),
    ("socketPublish", publish),
    ("socketPing", ping),
    ("socketEnd", end),
    ("socketBuffered", buffered),
    ("addressBytes", address_bytes),
];

const BINARY: u32 = 1;
const COMPRESS: u32 = 2;
/// Flag next to the compression bits: silent clients are sent pings.
const PINGS: u32 = 1 << 12;

fn socket(call: &Call<'_>) -> Option<Rc<Socket>> {
    call.addon.sockets.borrow().get(&call.u32(0)).cloned()
}

/// `socketRoute(app, domain, pattern, handler or undefined)`: sets or removes a route.
fn socket_route(call: &Call<'_>) -> Result<Value, Failure> {
    let app = call.addon.app(call.u32(0))?;
    app.upgrade_route(
        UpgradeKind::Socket,
        &call.string(1)?,
        &call.string(2)?,
        (!call.is_absent(3)).then(|| call.u32(3)),
    );
    Ok(call.env.undefined())
}

/// `socketKind(app, maxPayloadLength, maxBackpressure, idleTimeout in seconds, maxLifetime in
/// minutes, compression)`: returns the number of a kind of connections. A time of 0 means no limit;
/// `compression` has the bits of uWebSockets.js, and [`PINGS`].
fn socket_kind(call: &Call<'_>) -> Result<Value, Failure> {
    let app = call.addon.app(call.u32(0))?;
    let mut options = Options::default().with_message_bytes(call.f64(1) as u64);
    let seconds = call.f64(3);
    options = options.with_timeout(if seconds > 0.0 {
        Duration::try_from_secs_f64(seconds)?
    } else {
        Duration::MAX
    });
    let bits = call.u32(5);
    if bits & PINGS == 0 {
        options = options.without_pings();
    }
    if let Some(deflate) = compression(bits & !PINGS) {
        options = options.with_deflate(deflate);
    }
    let minutes = call.f64(4);
    let lifetime =
        if minutes > 0.0 { Some(Duration::try_from_secs_f64(minutes * 60.0)?) } else { None };
    let kind = Rc::new(Kind { options, max_backpressure: call.f64(2) as usize, lifetime });
    let number = call.addon.socket_kinds.borrow_mut().insert(kind);
    app.socket_kinds.borrow_mut().push(number);
    Ok(call.env.number(number as f64))
}

/// Reads the compression bits: 4 to 7 are the bits of the compression window, 8 to 11 those of the
/// decompression window; 1 means a shared one.
fn compression(bits: u32) -> Option<deflate::Options> {
    if bits == 0 {
        return None;
    }
    let mut options = deflate::Options::default();
    let (own, peer) = ((bits >> 4) & 15, (bits >> 8) & 15);
    if own > 0 {
        options = options.with_own_context(own as u8);
    }
    if peer > 1 {
        options = options.with_peer_context(peer as u8);
    }
    Some(options)
}

/// `upgrade(slot, kind, key, protocols, extensions)`: returns the number of the connection, or the
/// reason why it was refused, which answers the request. The strings are those of the request's
/// fields.
fn upgrade(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    let kind = call
        .addon
        .socket_kinds
        .borrow()
        .get(call.u32(1) as usize)
        .cloned()
        .ok_or("no such kind of WebSocket connections")?;
    let mut headers = HeaderMap::new();
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    let names: [HeaderName; 3] =
        [SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_EXTENSIONS];
    for (index, name) in (2..).zip(names) {
        let text = call.utf8(index)?;
        if !text.is_empty() {
            headers.insert(name, HeaderValue::from_bytes(&text)?);
        }
    }
    let mut options = kind.options.clone();
    if let Some(first) =
        call.string(3)?.split(',').next().map(str::trim).filter(|first| !first.is_empty())
    {
        options = options.with_protocol(first);
    }
    let asked = call
        .addon
        .take_upgrade(call.u32(0))
        .ok_or("the request does not ask for a WebSocket connection, or was answered already")?;
    let UpgradeRequest { responder, peer, upgrade, body, fields, .. } = asked;
    let request = Request {
        method: Method::GET,
        uri: Uri::default(),
        headers,
        peer,
        upgrade: Some(upgrade),
        body,
    };
    let mut granted = match WebSocketUpgrade::from_request(&request, &options) {
        Ok(granted) => granted,
        Err(refusal) => {
            responder.send(refusal.into());
            return Ok(call.env.string(&format!(
                "res.upgrade() needs the sec-websocket-key of the request: {refusal}"
            )));
        }
    };
    for (name, value) in &fields {
        granted.headers_mut().append(name, value.clone());
    }
    let handle = responder.handle().clone();
    let connection = granted.accept(responder, request.body);
    let socket = Socket::new(connection.sender().clone(), handle.clone(), kind.max_backpressure);
    let number = call.addon.add_socket(socket.clone());
    handle.spawn(Driver::new(call.addon.clone(), number, socket, connection, kind.lifetime));
    Ok(call.env.number(number.into()))
}

/// `nextPayload()`: returns the payload of the next event as an ArrayBuffer.
fn next_payload(call: &Call<'_>) -> Result<Value, Failure> {
    let payload = call.addon.payloads.borrow_mut().pop_front().ok_or("no event is read")?;
    call.env.array_buffer(payload.len(), [&payload[..]])
}

fn message(call: &Call<'_>, index: usize, flags: u32) -> Result<Message, Failure> {
    let kind = if flags & BINARY == 0 { websocket::Kind::Text } else { websocket::Kind::Binary };
    Ok(Message::new(kind, call.bytes(index)?)
        .ok_or("a WebSocket text message has to be UTF-8: send these bytes with isBinary")?)
}

fn sent(call: &Call<'_>, sent: Outcome) -> Value {
    call.env.number(f64::from(sent as u8))
}

/// `socketSend(number, content, flags)`: sends a message. Returns an [`Outcome`].
fn send(call: &Call<'_>) -> Result<Value, Failure> {
    let flags = call.u32(2);
    let message = message(call, 1, flags)?;
    let result =
        socket(call).map_or(Outcome::Gone, |socket| socket.send(&message, flags & COMPRESS != 0));
    Ok(sent(call, result))
}

/// `socketSendFragment(number, content, flags, place)`: sends the first (0), a middle (1) or the
/// last (2) fragment. Returns an [`Outcome`].
fn send_fragment(call: &Call<'_>) -> Result<Value, Failure> {
    let (data, flags) = (call.bytes(1)?, call.u32(2));
    let kind = if flags & BINARY == 0 { websocket::Kind::Text } else { websocket::Kind::Binary };
    let fragment = match call.u32(3) {
        0 => Fragment::First { kind, compress: flags & COMPRESS != 0 },
        1 => Fragment::Middle,
        _ => Fragment::Last,
    };
    let result =
        socket(call).map_or(Ok(Outcome::Gone), |socket| socket.send_fragment(fragment, data))?;
    Ok(sent(call, result))
}

/// `socketPublish(numbers, content, flags)`: sends a message to many connections. Returns an
/// ArrayBuffer with the numbers of those that dropped it. Numbers have four bytes in native order.
fn publish(call: &Call<'_>) -> Result<Value, Failure> {
    let flags = call.u32(2);
    let prepared = Prepared::new(message(call, 1, flags)?).with_compression(flags & COMPRESS != 0);
    let numbers = call.bytes(0)?;
    let mut dropped = Vec::new();
    for number in numbers.chunks_exact(4) {
        let socket =
            call.addon.sockets.borrow().get(&u32::from_ne_bytes(number.try_into()?)).cloned();
        if socket.is_some_and(|socket| socket.send_prepared(&prepared) == Outcome::Dropped) {
            dropped.extend_from_slice(number);
        }
    }
    if dropped.is_empty() {
        return Ok(call.env.undefined());
    }
    call.env.array_buffer(dropped.len(), [&dropped[..]])
}

/// `socketPing(number, content)`: sends a ping. Returns an [`Outcome`].
fn ping(call: &Call<'_>) -> Result<Value, Failure> {
    let data: Bytes = call.bytes(1)?;
    if data.len() > 125 {
        return Err("a ping has at most 125 bytes".into());
    }
    let result = socket(call).map_or(Outcome::Gone, |socket| socket.ping(&data));
    Ok(sent(call, result))
}

/// `socketEnd(number, code or undefined, reason)`: closes the connection with this code, 0 for
/// none; without a code it ends at once.
fn end(call: &Call<'_>) -> Result<Value, Failure> {
    let reason = match call.u32(1) {
        _ if call.is_absent(1) => None,
        0 => Some(None),
        code => {
            let allowed = u16::try_from(code).ok().and_then(CloseCode::new);
            let code = allowed.ok_or_else(|| {
                format!("invalid close code {code}: use 1000, or one from 3000 to 4999")
            })?;
            Some(Some(CloseReason {
                code,
                text: String::from_utf8_lossy(&call.bytes(2)?).into_owned(),
            }))
        }
    };
    let ended = call.addon.sockets.borrow_mut().remove(&call.u32(0));
    if let Some(socket) = ended {
        match reason {
            Some(reason) => socket.close(reason),
            None => socket.abort(),
        }
    }
    Ok(call.env.undefined())
}

/// `socketBuffered(number)`: returns the number of buffered bytes.
fn buffered(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call.env.number(socket(call).map_or(0, |socket| socket.buffered()) as f64))
}

/// `addressBytes(address)`: returns an IP address as 4 or 16 bytes.
fn address_bytes(call: &Call<'_>) -> Result<Value, Failure> {
    match call.string(0)?.parse()? {
        IpAddr::V4(address) => call.env.array_buffer(4, [&address.octets()[..]]),
        IpAddr::V6(address) => call.env.array_buffer(16, [&address.octets()[..]]),
    }
}
