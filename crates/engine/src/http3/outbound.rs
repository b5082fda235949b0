//! The items that the application sends on a request stream.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use pronghorn_h3::ErrorCode;

use crate::{Response, Upgrade};

/// Bytes of content that a producer may be ahead of the transport.
pub(super) const OUTBOUND_BYTES: usize = 64 << 10;
/// The same while memory is short.
pub(super) const PRESSED_OUTBOUND_BYTES: usize = 8 << 10;

/// An item that the application sends, in order. Large ones are boxed, since items are moved
/// several times.
pub(super) enum Outbound {
    Request(Box<RequestHead>),
    Interim(Box<(StatusCode, HeaderMap)>),
    Response(Box<Response>),
    Data(Bytes),
    Trailers(Box<HeaderMap>),
    End,
    Abort(ErrorCode),
}

impl Outbound {
    /// Whether another protocol follows this item.
    pub(super) fn begins_tunnel(&self) -> bool {
        match self {
            Self::Request(head) => head.upgrade.is_some(),
            Self::Response(response) => response.body.is_tunnel(),
            _ => false,
        }
    }
}

/// The head of a request that this side sends.
#[derive(Clone)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// Set for an extended CONNECT, which ignores [`RequestHead::method`].
    pub(crate) upgrade: Option<Upgrade>,
}

/// A queue that allocates nothing for its first item and the end after it. Most streams have no
/// other items.
#[derive(Default)]
pub(super) struct OutboundQueue {
    first: Option<Outbound>,
    rest: VecDeque<Outbound>,
    /// [`Outbound::End`] is last.
    ends: bool,
}

impl OutboundQueue {
    pub(super) fn push_back(&mut self, item: Outbound) {
        if self.ends {
            self.ends = false;
            self.rest.push_back(Outbound::End);
        }
        // `first` comes before `rest`.
        match item {
            Outbound::End => self.ends = true,
            item if self.first.is_none() && self.rest.is_empty() => self.first = Some(item),
            item => self.rest.push_back(item),
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Outbound> {
        let item = self.first.take().or_else(|| self.rest.pop_front());
        item.or_else(|| std::mem::take(&mut self.ends).then_some(Outbound::End))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_keeps_its_order_around_ends() {
        let name = |item: Outbound| match item {
            Outbound::Data(data) => String::from_utf8_lossy(&data).into_owned(),
            Outbound::End => "end".to_owned(),
            Outbound::Abort(_) => "abort".to_owned(),
            _ => "else".to_owned(),
        };
        let data = |text: &'static str| Outbound::Data(Bytes::from_static(text.as_bytes()));
        let mut queue = OutboundQueue::default();
        let mut popped = Vec::new();
        queue.push_back(data("a"));
        queue.push_back(Outbound::End);
        popped.extend(queue.pop_front().map(name));
        queue.push_back(Outbound::Abort(ErrorCode::H3_INTERNAL_ERROR));
        queue.push_back(data("b"));
        queue.push_back(Outbound::End);
        popped.extend(std::iter::from_fn(|| queue.pop_front()).map(name));
        assert_eq!(popped, ["a", "end", "abort", "b", "end"]);
        assert!(queue.rest.is_empty() && queue.pop_front().is_none());
    }
}
