//! Priorities that clients send besides the `priority` field: PRIORITY_UPDATE frames (RFC 9218),
//! and the PRIORITY of RFC 7540, which browsers still send.

use pronghorn_h3::Priority;
use rustc_hash::FxHashMap;

use super::frames::{Frame, flags, kind};
use crate::schedule::SHARED;

/// A frame's statement on the priority of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// In a request's head: its priority if it has no `priority` field.
    Head(Priority),
    /// Overrides all earlier statements.
    Update(Priority),
    /// Changes only the urgency.
    Urgency(u8),
}

impl Signal {
    /// Returns the signal of a complete frame and the stream that it is for.
    pub(super) fn read(frame: &Frame<'_>) -> Option<(u32, Self)> {
        match frame.kind {
            kind::HEADERS if frame.flags & flags::PRIORITY != 0 => {
                let padding = usize::from(frame.flags & flags::PADDED != 0);
                let (exclusive, weight) = legacy(frame.content(padding))?;
                Some((frame.stream, Self::Head(priority(exclusive, weight))))
            }
            kind::PRIORITY => {
                let (exclusive, weight) = legacy(frame.content(0))?;
                Some((frame.stream, Self::Urgency(priority(exclusive, weight).urgency)))
            }
            kind::PRIORITY_UPDATE => {
                let (stream, value) = frame.content(0).split_first_chunk()?;
                // The value is longer than what is kept of a frame, which no client needs.
                let is_whole = frame.length == frame.content(0).len();
                is_whole.then(|| {
                    (
                        u32::from_be_bytes(*stream) & 0x7fff_ffff,
                        Self::Update(Priority::from_field(value)),
                    )
                })
            }
            _ => None,
        }
    }
}

/// RFC 7540, section 6.3: whether the dependency is exclusive, and the weight from 1 to 256.
fn legacy(content: &[u8]) -> Option<(bool, u16)> {
    let [first, _, _, _, weight, ..] = *content else { return None };
    Some((first & 0x80 != 0, u16::from(weight) + 1))
}

/// Converts a weight. Chromium makes each request depend exclusively on another, which is an order,
/// and encodes its eight levels as weights from 256 down to 1 in equal steps. For other clients,
/// weights above and below the default of 16 raise and lower the urgency; streams with the same
/// parent share.
fn priority(exclusive: bool, weight: u16) -> Priority {
    const STEP: u16 = 255 / Priority::MAX_URGENCY as u16;
    let urgency = match weight {
        _ if exclusive => {
            ((256 - weight + STEP / 2) / STEP).min(u16::from(Priority::MAX_URGENCY)) as u8
        }
        ..16 => 4,
        16 => 3,
        17.. => 2,
    };
    Priority { urgency, incremental: !exclusive }
}

/// Priorities of streams that frames have set.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// The client sends priority frames, so a request without one has the default priority. A
    /// `priority` field does not imply this: it may come from a client behind a gateway.
    sends_frames: bool,
    /// The client sends both the field and weights (RFC 7540), where the weights are for servers
    /// without RFC 9218. A request without the field then has the default priority, whatever its
    /// weight. Firefox does this.
    sends_fields_and_weights: bool,
    /// Entries for requests that are arriving and for those whose responses are not complete.
    said: FxHashMap<u32, StreamPriority>,
}

#[derive(Clone, Copy, Debug, Default)]
struct StreamPriority {
    head: Option<Priority>,
    update: Option<Priority>,
    urgency: Option<u8>,
}

impl Signals {
    /// Keeps signals for at most `most` streams. Beyond that, those for the latest requests are
    /// dropped, because they are needed last. Returns whether any were dropped.
    pub(super) fn note(&mut self, stream: u32, signal: Signal, most: usize) -> bool {
        self.sends_frames = true;
        let mut is_dropped = false;
        if self.said.len() >= most && !self.said.contains_key(&stream) {
            is_dropped = true;
            let latest = self.said.keys().max().copied().unwrap_or(0);
            if stream > latest {
                return is_dropped;
            }
            self.said.remove(&latest);
        }
        let said = self.said.entry(stream).or_default();
        match signal {
            Signal::Head(priority) => said.head = Some(priority),
            Signal::Update(priority) => (said.update, said.urgency) = (Some(priority), None),
            Signal::Urgency(urgency) => said.urgency = Some(urgency),
        }
        is_dropped
    }

    /// Notes that the request on this stream has a `priority` field.
    pub(super) fn on_field(&mut self, stream: u32) {
        self.sends_fields_and_weights |=
            self.said.get(&stream).is_some_and(|said| said.head.is_some());
    }

    pub(super) fn is_updated(&self, stream: u32) -> bool {
        self.said.get(&stream).is_some_and(|said| said.update.is_some())
    }

    /// Returns the number of streams after `latest` that have an update.
    pub(super) fn updated_after(&self, latest: u32) -> usize {
        self.said.iter().filter(|(stream, said)| **stream > latest && said.update.is_some()).count()
    }

    /// Returns the priority of a request. `field`: that of its `priority` field, if it has one.
    pub(super) fn priority(&self, stream: u32, field: Option<Priority>) -> Priority {
        let said = self.said.get(&stream).copied().unwrap_or_default();
        let default_priority = if self.sends_frames { Priority::default() } else { SHARED };
        let head = said.head.filter(|_| !self.sends_fields_and_weights);
        let priority = said.update.or(field).or(head).unwrap_or(default_priority);
        Priority { urgency: said.urgency.unwrap_or(priority.urgency), ..priority }
    }

    /// Removes the entry of a stream that is done.
    pub(super) fn forget(&mut self, stream: u32) {
        if !self.said.is_empty() {
            self.said.remove(&stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::Frames;
    use super::*;

    fn read(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Option<(u32, Signal)> {
        let length = (content.len() as u32).to_be_bytes();
        let wire = [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat();
        let mut signal = None;
        Frames::default().read(&wire, |frame| {
            if frame.complete {
                signal = Signal::read(frame);
            }
        });
        signal
    }

    const fn shared(urgency: u8) -> Priority {
        Priority { urgency, incremental: true }
    }

    const fn ordered(urgency: u8) -> Priority {
        Priority { urgency, incremental: false }
    }

    #[test]
    fn weights_of_chromium_are_its_levels() {
        for (urgency, weight) in [256_u16, 220, 183, 147, 110, 74, 37, 1].into_iter().enumerate() {
            let content = [0x80, 0, 0, 1, (weight - 1) as u8];
            assert_eq!(
                read(kind::HEADERS, flags::PRIORITY, 3, &content),
                Some((3, Signal::Head(ordered(urgency as u8)))),
                "{weight}"
            );
            assert_eq!(
                read(kind::PRIORITY, 0, 3, &content),
                Some((3, Signal::Urgency(urgency as u8)))
            );
        }
    }

    #[test]
    fn weights_of_others_are_above_or_below_the_usual_one() {
        for (weight, urgency) in [(0, 4), (14, 4), (15, 3), (16, 2), (255, 2)] {
            assert_eq!(
                read(kind::HEADERS, flags::PRIORITY, 3, &[0, 0, 0, 0, weight]),
                Some((3, Signal::Head(shared(urgency))))
            );
        }
        // With padding, whose length comes first.
        let padded = [1, 0x80, 0, 0, 0, 255, 7, 0];
        assert_eq!(
            read(kind::HEADERS, flags::PRIORITY | flags::PADDED, 5, &padded),
            Some((5, Signal::Head(ordered(0))))
        );
    }

    #[test]
    fn what_says_nothing_or_too_much_is_no_signal() {
        assert_eq!(read(kind::HEADERS, 0, 3, &[0x80, 0, 0, 0, 255]), None);
        assert_eq!(read(kind::HEADERS, flags::PRIORITY, 3, &[0x80, 0, 0]), None);
        assert_eq!(read(kind::PRIORITY_UPDATE, 0, 0, &[0, 0, 0]), None);
        let long = |spaces: usize| [&[0, 0, 0, 9][..], &vec![b' '; spaces], b"u=1"].concat();
        assert_eq!(
            read(kind::PRIORITY_UPDATE, 0, 0, &long(1_017)),
            Some((9, Signal::Update(ordered(1))))
        );
        assert_eq!(read(kind::PRIORITY_UPDATE, 0, 0, &long(1_018)), None);
        assert_eq!(read(kind::DATA, flags::PRIORITY, 3, &[0; 9]), None);
    }

    #[test]
    fn update_overrides_the_field_and_the_field_the_head() {
        let mut signals = Signals::default();
        assert_eq!(signals.priority(1, None), shared(3), "nothing was ever said");
        signals.note(9, Signal::Urgency(1), 8);
        assert_eq!(signals.priority(1, None), Priority::default());
        signals.note(1, Signal::Head(ordered(2)), 8);
        assert_eq!(signals.priority(1, None), ordered(2));
        assert_eq!(signals.priority(1, Some(shared(5))), shared(5));
        signals.note(1, Signal::Urgency(1), 8);
        assert_eq!(signals.priority(1, Some(shared(5))), shared(1));
        let (stream, update) =
            read(kind::PRIORITY_UPDATE, 0, 0, &[&[0x80, 0, 0, 1][..], b"u=6"].concat()).unwrap();
        signals.note(stream, update, 8);
        assert_eq!(signals.priority(1, Some(shared(5))), ordered(6));
        signals.forget(1);
        assert_eq!(signals.priority(1, Some(shared(5))), shared(5));
    }

    #[test]
    fn weights_are_ignored_for_client_that_sends_fields() {
        let mut signals = Signals::default();
        signals.note(1, Signal::Head(shared(2)), 8);
        signals.on_field(3);
        assert_eq!(
            signals.priority(1, None),
            shared(2),
            "a field without a weight may come from a client behind a gateway"
        );
        signals.note(5, Signal::Head(shared(2)), 8);
        signals.on_field(5);
        assert_eq!(signals.priority(1, None), Priority::default());
        assert_eq!(signals.priority(5, Some(shared(4))), shared(4));
    }

    #[test]
    fn no_more_streams_are_kept_than_there_may_be() {
        let mut signals = Signals::default();
        let dropped = [3, 5, 7, 1].map(|stream| signals.note(stream, Signal::Urgency(0), 2));
        assert_eq!(dropped, [false, false, true, true]);
        assert_eq!(
            [1, 3, 5, 7].map(|stream| signals.priority(stream, None).urgency),
            [0, 0, 3, 3],
            "the latest are forgotten"
        );
        signals.note(3, Signal::Urgency(7), 2);
        assert_eq!([1, 3].map(|stream| signals.priority(stream, None).urgency), [0, 7]);
    }
}
