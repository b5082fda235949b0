//! Functions for the framework interfaces (`packages/pronghorn/lib/fetch`, `lib/http`). The first
//! argument of each is the exchange's slot.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::addon::{Call, Native};
use crate::head::push_lines;
use crate::js::{Failure, Value};

pub(super) const FUNCTIONS: [(&str, Native); 3] =
    [("head", head), ("trailers", trailers), ("endWithTrailers", end_with_trailers)];

/// `head(slot)`: returns the request head as one string; see [`HeadText::of`].
///
/// [`HeadText::of`]: crate::head::HeadText::of
fn head(call: &Call<'_>) -> Result<Value, Failure> {
    let mut text = call.addon.head_text.borrow_mut();
    let head = call.addon.with_exchange(call.u32(0), |exchange| call.env.latin1(text.of(exchange)));
    head.ok_or_else(|| "the exchange has ended".into())
}

/// `trailers(slot)`: returns names and values of the request's trailers, each with a zero before
/// it.
fn trailers(call: &Call<'_>) -> Result<Value, Failure> {
    let mut all = Vec::new();
    call.addon.with_exchange(call.u32(0), |exchange| {
        if let Some(trailers) = exchange.trailers() {
            push_lines(&mut all, trailers);
        }
    });
    Ok(call.env.latin1(&all))
}

/// `endWithTrailers(slot, content, lines)`: ends a response that has begun, with the last content
/// and trailers as lines of `name: value`.
fn end_with_trailers(call: &Call<'_>) -> Result<Value, Failure> {
    let content = call.bytes(1)?;
    let mut trailers = HeaderMap::new();
    for (name, value) in call.string(2)?.lines().filter_map(|line| line.split_once(": ")) {
        trailers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_str(value)?);
    }
    call.addon.apply_answers();
    call.addon.finish(call.u32(0), |exchange| {
        exchange.end_with_trailers(content, trailers);
        Some(())
    });
    Ok(call.env.undefined())
}
