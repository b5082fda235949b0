//! Unacknowledged field sections, and the table entries they refer to.

use std::collections::VecDeque;

/// Maximum number of unacknowledged sections with dynamic references, 24 bytes each. If a peer
/// never acknowledges, further sections have no dynamic references.
pub(super) const MAX_SECTIONS: usize = 512;

/// A section with dynamic references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) stream_id: u64,
    /// One above the newest entry that the section refers to.
    pub(super) required_insert_count: u64,
    /// The oldest entry that the section refers to. Entries are evicted in order, so this one
    /// protects all newer ones, and only its references need to be counted.
    pub(super) oldest: u64,
}

/// Sections in the order in which they were encoded.
#[derive(Debug, Default)]
pub(super) struct Unacknowledged {
    sections: VecDeque<Section>,
    known_received_count: u64,
    /// Number of sections that may be blocked at the decoder, because they need more insertions
    /// than it is known to have received.
    possibly_blocked: usize,
}

impl Unacknowledged {
    /// Returns the number of insertions that the decoder is known to have received (RFC 9204
    /// section 2.1.4).
    pub(super) const fn known_received_count(&self) -> u64 {
        self.known_received_count
    }

    pub(super) fn is_full(&self) -> bool {
        self.sections.len() >= MAX_SECTIONS
    }

    pub(super) fn push(&mut self, section: Section) {
        self.possibly_blocked +=
            usize::from(section.required_insert_count > self.known_received_count);
        self.sections.push_back(section);
    }

    /// Returns whether one more section of this stream may risk blocking, if `limit` streams may be
    /// blocked.
    pub(super) fn may_risk_blocking(&self, stream_id: u64, limit: u64) -> bool {
        //= RFC 9204 section 2.1.2
        //# An encoder MUST limit the number of streams that could become blocked to the value of
        //# SETTINGS_QPACK_BLOCKED_STREAMS at all times.
        // Counts sections, of which a stream can have several, so the count is never too low.
        (self.possibly_blocked as u64) < limit || self.is_possibly_blocked(stream_id)
    }

    fn is_possibly_blocked(&self, stream_id: u64) -> bool {
        self.possibly_blocked > 0
            && self.sections.iter().any(|section| {
                section.stream_id == stream_id
                    && section.required_insert_count > self.known_received_count
            })
    }

    /// Releases memory that is kept for later sections.
    pub(super) fn release_memory(&mut self) {
        self.sections.shrink_to_fit();
    }

    /// Removes the earliest section of the stream, which was acknowledged.
    pub(super) fn acknowledge(&mut self, stream_id: u64) -> Option<Section> {
        let place = self.sections.iter().position(|section| section.stream_id == stream_id)?;
        let section = self.remove(place);
        self.on_received(section.required_insert_count);
        Some(section)
    }

    /// Removes one section of the cancelled stream; call it until there is none.
    pub(super) fn cancel(&mut self, stream_id: u64) -> Option<Section> {
        let place = self.sections.iter().position(|section| section.stream_id == stream_id)?;
        Some(self.remove(place))
    }

    /// Records that the decoder has received this many insertions.
    pub(super) fn on_received(&mut self, insert_count: u64) {
        if insert_count > self.known_received_count {
            self.known_received_count = insert_count;
            self.possibly_blocked = self
                .sections
                .iter()
                .filter(|section| section.required_insert_count > insert_count)
                .count();
        }
    }

    fn remove(&mut self, place: usize) -> Section {
        let section = self.sections.remove(place).expect("invariant: the place was found");
        self.possibly_blocked -=
            usize::from(section.required_insert_count > self.known_received_count);
        section
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn section(stream_id: u64, required_insert_count: u64) -> Section {
        Section { stream_id, required_insert_count, oldest: 0 }
    }

    #[test]
    fn acknowledgments_take_the_earliest_section_of_their_stream() {
        let mut unacknowledged = Unacknowledged::default();
        for section in [section(0, 1), section(4, 3), section(0, 2)] {
            unacknowledged.push(section);
        }
        assert_eq!(unacknowledged.acknowledge(0), Some(section(0, 1)));
        assert_eq!(unacknowledged.acknowledge(0), Some(section(0, 2)));
        assert_eq!(unacknowledged.acknowledge(0), None);
        assert_eq!(unacknowledged.known_received_count(), 2);
        assert_eq!(unacknowledged.cancel(4), Some(section(4, 3)));
        assert_eq!(unacknowledged.known_received_count(), 2);
    }

    //= RFC 9204 section 2.1.2
    //# An encoder MUST limit the number of streams that could become blocked to the value of
    //# SETTINGS_QPACK_BLOCKED_STREAMS at all times.
    #[test]
    fn streams_that_risk_blocking_are_limited() {
        let mut unacknowledged = Unacknowledged::default();
        assert!(!unacknowledged.may_risk_blocking(0, 0));
        unacknowledged.push(section(0, 1));
        unacknowledged.push(section(4, 2));
        assert!(unacknowledged.may_risk_blocking(8, 3));
        assert!(!unacknowledged.may_risk_blocking(8, 2));
        assert!(unacknowledged.may_risk_blocking(4, 2));
        unacknowledged.on_received(1);
        assert!(unacknowledged.may_risk_blocking(8, 2));
        unacknowledged.on_received(2);
        assert!(!unacknowledged.may_risk_blocking(4, 0));
        unacknowledged.push(section(12, 3));
        assert!(!unacknowledged.may_risk_blocking(16, 1));
        unacknowledged.cancel(12);
        assert!(unacknowledged.may_risk_blocking(16, 1));
    }
}
