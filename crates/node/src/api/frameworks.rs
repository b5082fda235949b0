//! What the doors for frameworks (`packages/pronghorn/lib/fetch`, `lib/http`) ask for. Each function takes the exchange's slot first.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue};
use pronghorn_engine::Protocol;

use crate::js::{Call, Failure, Native, Value};

pub(super) const FUNCTIONS: [(&str, Native); 3] = [("head", head), ("trailers", trailers), ("endWithTrailers", end_with_trailers)];

/// Adds each line of `fields` as its name and its value, with a zero before each of them.
fn push_lines(all: &mut Vec<u8>, fields: &HeaderMap) {
    for (name, value) in fields {
        all.push(0);
        all.extend_from_slice(name.as_str().as_bytes());
        all.push(0);
        all.extend_from_slice(value.as_bytes());
    }
}

/// `head(slot)`: the whole head as one string of parts with zeros between them, a character for each byte: method, target, protocol (1, 2
/// or 3), flags (`s`: encrypted, `e`: early data), the client's address and port, the name that TLS was asked for, then name and value of each
/// field line.
fn head(call: &Call<'_>) -> Result<Value, Failure> {
    let head = call.addon.with_exchange(call.u32(0), |exchange| {
        let (uri, peer) = (&exchange.uri, &exchange.peer);
        let protocol = match peer.protocol {
            Protocol::Http1 => '1',
            Protocol::Http2 => '2',
            Protocol::Http3 => '3',
        };
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        let mut text = String::with_capacity(512);
        let flags = [peer.secure.then_some('s'), peer.early_data.then_some('e')].into_iter().flatten().collect::<String>();
        let (address, port) = (peer.remote.ip().to_canonical(), peer.remote.port());
        let name = peer.server_name.as_deref().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(text, "{}\0{target}\0{protocol}\0{flags}\0{address}\0{port}\0{name}", exchange.method);
        let mut all = text.into_bytes();
        push_lines(&mut all, &exchange.headers);
        all
    });
    Ok(call.env.latin1(&head.ok_or("the exchange has ended")?))
}

/// `trailers(slot)`: names and values of what came behind the request's content, with a zero before each of them.
fn trailers(call: &Call<'_>) -> Result<Value, Failure> {
    let mut all = Vec::new();
    call.addon.with_exchange(call.u32(0), |exchange| {
        if let Some(trailers) = exchange.trailers() {
            push_lines(&mut all, trailers);
        }
    });
    Ok(call.env.latin1(&all))
}

/// `endWithTrailers(slot, content, lines)`: ends a response that was begun, with lines of `name: value` behind its content.
fn end_with_trailers(call: &Call<'_>) -> Result<Value, Failure> {
    let content = call.bytes(1)?;
    let mut trailers = HeaderMap::new();
    for (name, value) in call.string(2)?.lines().filter_map(|line| line.split_once(": ")) {
        trailers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
    }
    call.addon.apply_answers();
    if let Some(exchange) = call.addon.take(call.u32(0)) {
        exchange.end_with_trailers(content, trailers);
    }
    Ok(call.env.undefined())
}
