//! Applies the limits table to HTTP/3, and maps HTTP/3's limits to their counters.

use pronghorn_h3::{Config, ConfigError, Limit};

use crate::stats::{Counter, Stats};

/// Smallest number of field lines that HTTP/3 can be set to: a request needs some for itself.
const FEWEST_LINES: u64 = 16;

/// Returns `config` with the limits of the table.
pub(super) fn apply(config: Config, settings: &crate::Config) -> Result<Config, ConfigError> {
    let limits = &settings.limits;
    config
        .with_webtransport_sessions(if settings.webtransport {
            limits.webtransport_sessions()
        } else {
            0
        })?
        .with_max_waiting_streams(limits.webtransport_early_streams() as u32)?
        .with_extended_connect(true)
        .with_max_concurrent_requests(limits.concurrent_streams())
        .with_max_field_section_size(limits.field_section_bytes())?
        .with_max_field_lines(limits.field_lines().max(FEWEST_LINES) as u32)?
        .with_max_useless_frames(limits.useless_frames() as u32)?
        .with_max_useless_bytes(limits.useless_bytes())?
        .with_max_unknown_streams(limits.unknown_streams() as u32)?
        .with_max_control_frames(limits.control_stream_frames() as u32)?
        .with_max_aborted_requests(limits.aborted_requests() as u32)?
        .with_qpack_table_capacity(limits.qpack_table_bytes())?
        .with_qpack_blocked_streams(limits.qpack_blocked_streams())?
        .with_qpack_encoder_capacity(limits.qpack_encoder_table_bytes())
}

/// Returns the counter of a limit that a peer has reached.
pub(super) fn counter(limit: Limit, stats: &Stats) -> Option<&Counter> {
    Some(match limit {
        Limit::FieldSectionSize => &stats.heads_too_large,
        Limit::FieldLines => &stats.heads_too_many_lines,
        Limit::UselessFrames => &stats.useless_frame_floods,
        Limit::UselessBytes => &stats.useless_byte_floods,
        Limit::UnknownStreams => &stats.unknown_stream_floods,
        Limit::ControlFrames => &stats.control_stream_floods,
        Limit::AbortedRequests => &stats.aborted_request_floods,
        Limit::SettingsSize | Limit::PriorityUpdateSize => &stats.oversized_frames,
        Limit::DecoderBacklog => &stats.decoder_backlogs,
        Limit::BlockedStreamBytes => &stats.blocked_stream_overruns,
        Limit::QpackTableCapacity => &stats.qpack_tables_exceeded,
        Limit::QpackBlockedStreams => &stats.qpack_blocked_streams_exceeded,
        Limit::Sessions => &stats.webtransport_sessions_refused,
        Limit::WaitingStreams => &stats.webtransport_early_streams_refused,
        // A limit for servers, reached in our role as a client: the request's error says so.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_and_largest_values_of_the_table_are_taken() {
        let mut all = vec![crate::Limits::default()];
        for edge in [|limit: &crate::Limit| limit.min, |limit: &crate::Limit| limit.max] {
            let edges = crate::Limits::table().iter().try_fold(
                crate::Limits::default(),
                |limits, limit| {
                    let text = limit.unit.write(edge(limit)).replace(' ', "");
                    limits.with_named(limit.name, &text)
                },
            );
            all.push(edges.unwrap());
        }
        for limits in all {
            apply(
                Config::default(),
                &crate::Config { limits, webtransport: true, ..crate::Config::default() },
            )
            .unwrap();
        }
    }

    #[test]
    fn every_limit_of_a_server_has_a_counter() {
        let stats = Stats::default();
        let without = Limit::ALL.into_iter().filter(|limit| counter(*limit, &stats).is_none());
        assert_eq!(without.collect::<Vec<_>>(), [Limit::InterimResponses]);
    }
}
