//! What the doors for frameworks (`packages/pronghorn/lib/fetch`, `lib/http`) ask for. Each function takes the exchange's slot first.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::head::push_lines;
use crate::js::{Call, Failure, Native, Value};

pub(super) const FUNCTIONS: [(&str, Native); 3] = [("head", head), ("trailers", trailers), ("endWithTrailers", end_with_trailers)];

/// `head(slot)`: the whole head as one string; see [`HeadText::of`].
///
/// [`HeadText::of`]: crate::head::HeadText::of
fn head(call: &Call<'_>) -> Result<Value, Failure> {
    let mut text = call.addon.head_text.borrow_mut();
    let head = call.addon.with_exchange(call.u32(0), |exchange| call.env.latin1(text.of(exchange)));
    head.ok_or_else(|| "the exchange has ended".into())
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
    call.addon.finish(call.u32(0), |exchange| {
        exchange.end_with_trailers(content, trailers);
        Some(())
    });
    Ok(call.env.undefined())
}
