//! Response operations that do not go through the shared memory. The first argument of each is the
//! exchange's slot, unless noted.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::addon::{Call, Native};
use crate::js::{Failure, Value};

pub(super) const FUNCTIONS: [(&str, Native); 8] = [
    ("fieldName", field_name),
    ("writeField", write_field),
    ("write", write),
    ("tryEnd", try_end),
    ("begin", begin),
    ("offset", offset),
    ("endWith", end_with),
    ("inform", inform),
];

/// Maximum number of header names that JavaScript refers to by number.
const MAX_NAMES: usize = 1024;

/// `fieldName(name)`: returns the number of a header name, or `undefined` if there are too many.
fn field_name(call: &Call<'_>) -> Result<Value, Failure> {
    let text = call.string(0)?;
    let name = HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("invalid header name {text:?}"))?;
    let mut names = call.addon.names.borrow_mut();
    if names.len() >= MAX_NAMES {
        return Ok(call.env.undefined());
    }
    names.push((name, None));
    Ok(call.env.number((names.len() - 1) as f64))
}

/// `writeField(slot, name, value)`: adds a header whose name has no number, or whose value does not
/// fit into the shared memory.
fn write_field(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    let (name, value) = (call.string(1)?, call.bytes(2)?);
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("invalid header name {name:?}"))?;
    let value = HeaderValue::from_bytes(&value)
        .map_err(|_| format!("invalid value of header {name}: it contains a control character"))?;
    call.addon.with_exchange(call.u32(0), |exchange| exchange.fields.append(name, value));
    Ok(call.env.undefined())
}

/// Sends the response head if it has not been sent. Content follows.
fn begin_stream(call: &Call<'_>, total: Option<u64>) {
    call.addon.apply_answers();
    let slot = call.u32(0);
    // Before the responder is taken, because it spawns the future. From here on the pipe reports
    // that the peer has left.
    call.addon.watch(slot);
    let begun = call
        .addon
        .with_exchange(slot, |exchange| exchange.begin_stream(call.addon.clone(), slot, total))
        .flatten();
    if let Some((responder, response)) = begun {
        responder.send(response);
    }
}

/// `begin(slot)`: sends the response head.
fn begin(call: &Call<'_>) -> Result<Value, Failure> {
    begin_stream(call, None);
    Ok(call.env.undefined())
}

/// `write(slot, chunk)`: sends a chunk. Returns whether there is capacity for more.
fn write(call: &Call<'_>) -> Result<Value, Failure> {
    let chunk = call.bytes(1)?;
    begin_stream(call, None);
    let has_room = call.addon.with_exchange(call.u32(0), |exchange| {
        exchange.written += chunk.len() as u64;
        exchange.pipe.as_ref().is_none_or(|pipe| pipe.push(chunk))
    });
    Ok(call.env.boolean(has_room.unwrap_or(false)))
}

/// `tryEnd(slot, chunk, total)`: sends what fits. Returns 1 if the whole chunk was accepted, plus 2
/// if the content is complete.
fn try_end(call: &Call<'_>) -> Result<Value, Failure> {
    let total = call.f64(2) as u64;
    begin_stream(call, Some(total));
    let taken = call.addon.with_exchange(call.u32(0), |exchange| {
        let Some(pipe) = &exchange.pipe else { return Ok((true, true)) };
        let left = usize::try_from(total.saturating_sub(exchange.written)).unwrap_or(usize::MAX);
        // Only the part that fits is copied, which matters for a file in memory.
        let (chunk, size) = call.bytes_up_to(1, left.min(pipe.room()))?;
        let fits = chunk.len() == size.min(left);
        exchange.written += chunk.len() as u64;
        pipe.push(chunk);
        if !fits {
            pipe.ask_for_room();
        }
        Ok::<_, Failure>((fits, exchange.written == total))
    });
    let (fits, done) = taken.transpose()?.unwrap_or((true, true));
    Ok(call.env.number(f64::from(u8::from(fits) + 2 * u8::from(done))))
}

/// `offset(slot)`: returns the number of content bytes accepted so far.
fn offset(call: &Call<'_>) -> Result<Value, Failure> {
    let written = call.addon.with_exchange(call.u32(0), |exchange| exchange.written);
    Ok(call.env.number(written.unwrap_or(0) as f64))
}

/// `endWith(slot, content, close)`: ends with content that does not fit into the shared memory.
fn end_with(call: &Call<'_>) -> Result<Value, Failure> {
    let content = call.bytes(1)?;
    call.addon.apply_answers();
    call.addon.end(call.u32(0), content, call.boolean(2));
    Ok(call.env.undefined())
}

/// `inform(slot, status, lines)`: sends an interim response with lines of `name: value`.
fn inform(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.apply_answers();
    let status = StatusCode::from_u16(call.u32(1) as u16)?;
    let mut headers = HeaderMap::new();
    for (name, value) in call.string(2)?.lines().filter_map(|line| line.split_once(": ")) {
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
    }
    call.addon.with_exchange(call.u32(0), |exchange| {
        if let Some(responder) = &mut exchange.responder {
            responder.send_interim(status, &headers);
        }
    });
    Ok(call.env.undefined())
}
