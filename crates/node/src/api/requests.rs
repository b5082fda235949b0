//! Functions that read requests. The first argument of each is the exchange's slot.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue};
use pronghorn_engine::Protocol;

use crate::addon::{Call, DECLARATIVE, Native};
use crate::admission;
use crate::app::UpgradeKind;
use crate::declarative::query_value;
use crate::exchange::Exchange;
use crate::js::{Env, Failure, Value};

pub(super) const FUNCTIONS: [(&str, Native); 17] = [
    ("method", method),
    ("url", url),
    ("query", query),
    ("queryValue", query_value_of),
    ("header", header),
    ("headers", headers),
    ("parameter", parameter),
    ("nextHandler", next_handler),
    ("protocol", protocol),
    ("serverName", server_name),
    ("clientCertificateStatus", client_certificate_status),
    ("clientCertificate", client_certificate),
    ("remoteAddress", remote_address),
    ("remoteAddressAsText", remote_address_as_text),
    ("remotePort", remote_port),
    ("read", read),
    ("takeContent", take_content),
];

fn with<T>(call: &Call<'_>, action: impl FnOnce(&mut Exchange) -> T) -> Result<T, Failure> {
    Ok(call.addon.with_exchange(call.u32(0), action).ok_or("the exchange has ended")?)
}

/// Returns a field value as a string: UTF-8 if it is valid, otherwise a character for each byte.
fn text(env: Env, value: &[u8]) -> Value {
    std::str::from_utf8(value).map_or_else(|_| env.latin1(value), |text| env.string(text))
}

fn method(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| call.env.string(exchange.method.as_str()))
}

fn url(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| call.env.string(exchange.uri.path()))
}

fn query(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| call.env.string(exchange.uri.query().unwrap_or_default()))
}

fn query_value_of(call: &Call<'_>) -> Result<Value, Failure> {
    let key = call.string(1)?;
    with(call, |exchange| {
        let value = query_value(exchange.uri.query().unwrap_or_default(), &key);
        value.map_or(call.env.undefined(), |value| text(call.env, &value))
    })
}

/// Joins the lines of a field (RFC 9110, section 5.3; for `cookie` RFC 9114, section 4.2.1).
fn combined(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let mut value = lines.next()?.to_vec();
    for line in lines {
        value.extend_from_slice(if name == COOKIE { b"; " } else { b", " });
        value.extend_from_slice(line);
    }
    Some(value)
}

fn header(call: &Call<'_>) -> Result<Value, Failure> {
    let name = call.utf8(1)?;
    with(call, |exchange| {
        let Ok(name) = HeaderName::from_bytes(&name) else { return call.env.string("") };
        let mut lines = exchange.headers.get_all(&name).iter();
        match (lines.next(), lines.next()) {
            (None, _) => call.env.string(""),
            (Some(value), None) => text(call.env, value.as_bytes()),
            _ => text(call.env, &combined(&exchange.headers, &name).unwrap_or_default()),
        }
    })
}

/// `headers(slot)`: returns all fields as one string: names and joined values, each followed by a
/// zero.
fn headers(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| {
        let mut all = String::new();
        for name in exchange.headers.keys() {
            all.push_str(name.as_str());
            all.push('\0');
            let value = combined(&exchange.headers, name).unwrap_or_default();
            match std::str::from_utf8(&value) {
                Ok(value) => all.push_str(value),
                // Like `text`, for this value only.
                Err(_) => all.extend(value.iter().copied().map(char::from)),
            }
            all.push('\0');
        }
        call.env.string(&all)
    })
}

fn parameter(call: &Call<'_>) -> Result<Value, Failure> {
    let index = call.u32(1) as usize;
    with(call, |exchange| match exchange.parameters.get(index) {
        Some((begin, end)) => call.env.string(&exchange.uri.path()[*begin as usize..*end as usize]),
        None => call.env.undefined(),
    })
}

/// `nextHandler(slot)`: returns the handler of the next matching route, or `undefined`; -1 if it
/// was a program that has responded.
fn next_handler(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    let slot = call.u32(0);
    let app = with(call, |exchange| exchange.app)?;
    let app = call.addon.app(app)?;
    let found = with(call, |exchange| {
        let (handler, parameters) = app.find(
            &exchange.method,
            &exchange.uri,
            &exchange.headers,
            UpgradeKind::from_upgrade(exchange.upgrade.as_ref()),
            exchange.matches_tried,
        )?;
        exchange.matches_tried += 1;
        exchange.parameters = parameters;
        Some((handler, exchange.responder.is_some()))
    })?;
    let Some((handler, is_unanswered)) = found else { return Ok(call.env.undefined()) };
    if handler & DECLARATIVE == 0 {
        return Ok(call.env.number(handler.into()));
    }
    if !is_unanswered {
        return Err(
            "a response that has begun cannot be left to a DeclarativeResponse: yield before \
                write(), tryEnd() and beginWrite()"
                .into(),
        );
    }
    if let Some((request, responder, parameters, begun)) =
        call.addon.take(slot).and_then(|mut exchange| exchange.hand_over())
    {
        call.addon.program(handler).answer(request, responder, &parameters, begun);
    }
    Ok(call.env.number(-1.0))
}

fn protocol(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| {
        call.env.string(match exchange.peer.protocol {
            Protocol::Http1 => "http/1.1",
            Protocol::Http2 => "h2",
            Protocol::Http3 => "h3",
        })
    })
}

/// `serverName(slot)`: returns the server name of the TLS handshake, or an empty string.
fn server_name(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| call.env.string(exchange.peer.server_name.as_deref().unwrap_or_default()))
}

/// `clientCertificateStatus(slot)`: returns the state of the client's certificate, see
/// [`admission::certificate_status`], and its SHA-256 in hexadecimal, separated by a space. Call it
/// before the handler has returned.
fn client_certificate_status(call: &Call<'_>) -> Result<Value, Failure> {
    let app = with(call, |exchange| exchange.app)?;
    let app = call.addon.app(app)?;
    let text = with(call, |exchange| {
        let certificate_status = app.certificates.get().map_or("", |certificates| {
            admission::certificate_status(
                certificates,
                &exchange.peer,
                &exchange.uri,
                &exchange.headers,
            )
        });
        let mut text = format!("{certificate_status} ");
        if let Some(certificate) = &exchange.peer.client_certificate {
            for byte in certificate.fingerprint() {
                let _ = write!(text, "{byte:02x}");
            }
        }
        text
    })?;
    Ok(call.env.string(&text))
}

/// `clientCertificate(slot, index)`: returns a certificate of the client's chain in DER, or
/// `undefined`.
fn client_certificate(call: &Call<'_>) -> Result<Value, Failure> {
    let index = call.u32(1) as usize;
    let shown = with(call, |exchange| exchange.peer.client_certificate.clone())?;
    match shown.as_ref().and_then(|shown| shown.chain().get(index)) {
        Some(certificate) => call.env.array_buffer(certificate.len(), [&certificate[..]]),
        None => Ok(call.env.undefined()),
    }
}

fn remote_address(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| match exchange.peer.remote.ip().to_canonical() {
        IpAddr::V4(address) => call.env.array_buffer(4, [&address.octets()[..]]),
        IpAddr::V6(address) => call.env.array_buffer(16, [&address.octets()[..]]),
    })?
}

fn remote_address_as_text(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| call.env.string(&exchange.peer.remote.ip().to_canonical().to_string()))
}

fn remote_port(call: &Call<'_>) -> Result<Value, Failure> {
    with(call, |exchange| call.env.number(exchange.peer.remote.port().into()))
}

/// `read(slot, paused)`: reads the request's content, or pauses reading.
fn read(call: &Call<'_>) -> Result<Value, Failure> {
    let paused = call.boolean(1);
    with(call, |exchange| exchange.read(paused))?;
    call.addon.watch(call.u32(0));
    Ok(call.env.undefined())
}

/// `takeContent(slot)`: returns the received content as an ArrayBuffer.
fn take_content(call: &Call<'_>) -> Result<Value, Failure> {
    let pieces = with(call, Exchange::take_content)?;
    call.env.array_buffer(
        pieces.iter().map(bytes::Bytes::len).sum(),
        pieces.iter().map(|piece| &piece[..]),
    )
}
