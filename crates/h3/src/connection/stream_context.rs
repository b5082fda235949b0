//! State shared by the streams of a connection.

use pronghorn_qpack::{Decoder, FieldSection};

use super::{cost_balance::CostBalance, events::EventQueue};
use crate::{config::Config, error::StreamFault, event::Event, role::Role, stream::StreamId};

/// Maximum number of sections whose memory is kept for later messages.
const MAX_SPARE_SECTIONS: usize = 16;
/// Larger sections are not kept.
const MAX_SPARE_SECTION_BYTES: usize = 16 * 1024;

/// State shared by the streams of a connection.
#[derive(Debug)]
pub(super) struct StreamContext {
    pub(super) role: Role,
    pub(super) config: Config,
    pub(super) decoder: Decoder,
    pub(super) events: EventQueue,
    pub(super) cost_balance: CostBalance,
    pub(super) spare_sections: Vec<FieldSection>,
    /// Server role: authority of the latest request, which the next one probably has too.
    pub(super) latest_authority: Vec<u8>,
}

impl StreamContext {
    pub(super) fn new(role: Role, config: Config) -> Self {
        let cost_balance = CostBalance::new(&config);
        let decoder =
            Decoder::with_table(config.qpack_table_capacity, config.qpack_blocked_streams);
        Self {
            role,
            config,
            decoder,
            events: EventQueue::default(),
            cost_balance,
            spare_sections: Vec::new(),
            latest_authority: Vec::new(),
        }
    }

    pub(super) fn recycle(&mut self, mut section: FieldSection) {
        if self.spare_sections.len() < MAX_SPARE_SECTIONS
            && section.capacity_bytes() <= MAX_SPARE_SECTION_BYTES
        {
            section.clear();
            self.spare_sections.push(section);
        }
    }

    /// Releases memory that is kept for later messages.
    pub(super) fn release_memory(&mut self) {
        self.decoder.release_memory();
        self.events.release_memory();
        self.spare_sections = Vec::new();
    }

    pub(super) fn fault(&mut self, stream: StreamId, fault: StreamFault) {
        let StreamFault { code, reason, limit } = fault;
        self.events.push_back(Event::StreamError { stream, code, reason, limit });
    }
}
