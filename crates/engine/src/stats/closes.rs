//! Counters of closed QUIC connections, by side and code.

use pronghorn_h3::ErrorCode;

use super::counter::Counter;

/// The side that closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closer {
    /// This side.
    Local,
    /// The peer.
    Peer,
}

/// The error code of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseCode {
    /// An application code, that is, one of HTTP/3.
    Application(u64),
    /// A transport code (RFC 9000, section 20.1).
    Transport(u64),
}

/// Codes of HTTP/3 and QPACK that each have a counter.
const APPLICATION: [ErrorCode; 21] = [
    ErrorCode::H3_NO_ERROR,
    ErrorCode::H3_GENERAL_PROTOCOL_ERROR,
    ErrorCode::H3_INTERNAL_ERROR,
    ErrorCode::H3_STREAM_CREATION_ERROR,
    ErrorCode::H3_CLOSED_CRITICAL_STREAM,
    ErrorCode::H3_FRAME_UNEXPECTED,
    ErrorCode::H3_FRAME_ERROR,
    ErrorCode::H3_EXCESSIVE_LOAD,
    ErrorCode::H3_ID_ERROR,
    ErrorCode::H3_SETTINGS_ERROR,
    ErrorCode::H3_MISSING_SETTINGS,
    ErrorCode::H3_REQUEST_REJECTED,
    ErrorCode::H3_REQUEST_CANCELLED,
    ErrorCode::H3_REQUEST_INCOMPLETE,
    ErrorCode::H3_MESSAGE_ERROR,
    ErrorCode::H3_CONNECT_ERROR,
    ErrorCode::H3_VERSION_FALLBACK,
    ErrorCode::H3_DATAGRAM_ERROR,
    ErrorCode::QPACK_DECOMPRESSION_FAILED,
    ErrorCode::QPACK_ENCODER_STREAM_ERROR,
    ErrorCode::QPACK_DECODER_STREAM_ERROR,
];

/// Transport codes, from 0 on (RFC 9000, section 20.1).
const TRANSPORT: [&str; 17] = [
    "NO_ERROR",
    "INTERNAL_ERROR",
    "CONNECTION_REFUSED",
    "FLOW_CONTROL_ERROR",
    "STREAM_LIMIT_ERROR",
    "STREAM_STATE_ERROR",
    "FINAL_SIZE_ERROR",
    "FRAME_ENCODING_ERROR",
    "TRANSPORT_PARAMETER_ERROR",
    "CONNECTION_ID_LIMIT_ERROR",
    "PROTOCOL_VIOLATION",
    "INVALID_TOKEN",
    "APPLICATION_ERROR",
    "CRYPTO_BUFFER_EXCEEDED",
    "KEY_UPDATE_ERROR",
    "AEAD_LIMIT_REACHED",
    "NO_VIABLE_PATH",
];
/// Index for all TLS alerts together.
const CRYPTO: usize = APPLICATION.len() + TRANSPORT.len();
/// Index for any other code; peers may make codes up.
const OTHER: usize = CRYPTO + 1;
const CODES: usize = OTHER + 1;

/// Counters of closed connections to this server, by side and code. Only their worker changes them;
/// any thread may read them.
#[derive(Debug)]
pub struct Closes([[Counter; CODES]; 2]);

impl Default for Closes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| std::array::from_fn(|_| Counter::default())))
    }
}

impl Closes {
    pub(crate) fn add(&self, by: Closer, code: CloseCode) {
        self.0[by as usize][place(code)].add(1);
    }

    /// Returns all sides and codes, in a fixed order, with their counts. Codes have the names of
    /// their RFCs; TLS alerts are `CRYPTO_ERROR`, and unknown codes are `other`.
    pub fn values(&self) -> impl Iterator<Item = (Closer, &'static str, u64)> {
        [Closer::Local, Closer::Peer].into_iter().flat_map(|by| {
            self.0[by as usize]
                .iter()
                .enumerate()
                .map(move |(place, counter)| (by, name(place), counter.value()))
        })
    }
}

fn place(code: CloseCode) -> usize {
    match code {
        CloseCode::Application(code) => {
            APPLICATION.iter().position(|known| known.0 == code).unwrap_or(OTHER)
        }
        CloseCode::Transport(0x100..=0x1ff) => CRYPTO,
        CloseCode::Transport(code) => {
            let place = usize::try_from(code).ok().filter(|code| *code < TRANSPORT.len());
            place.map_or(OTHER, |code| APPLICATION.len() + code)
        }
    }
}

fn name(place: usize) -> &'static str {
    match place {
        CRYPTO => "CRYPTO_ERROR",
        OTHER => "other",
        place => match APPLICATION.get(place) {
            Some(code) => code.name().unwrap_or("other"),
            None => TRANSPORT[place - APPLICATION.len()],
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_code_counts_under_its_own_name() {
        let closes = Closes::default();
        for (by, code, name) in [
            (Closer::Peer, CloseCode::Application(0x100), "H3_NO_ERROR"),
            (Closer::Local, CloseCode::Application(0x202), "QPACK_DECODER_STREAM_ERROR"),
            (Closer::Local, CloseCode::Transport(0), "NO_ERROR"),
            (Closer::Local, CloseCode::Transport(0x10), "NO_VIABLE_PATH"),
            (Closer::Peer, CloseCode::Transport(0x12a), "CRYPTO_ERROR"),
            (Closer::Peer, CloseCode::Transport(0x11), "other"),
            (Closer::Local, CloseCode::Application(u64::MAX), "other"),
        ] {
            let before =
                closes.values().find(|(side, one, _)| (*side, *one) == (by, name)).unwrap().2;
            closes.add(by, code);
            assert!(closes.values().any(|value| value == (by, name, before + 1)), "{code:?}");
        }
        let names: HashSet<_> =
            closes.values().map(|(by, name, _)| (by == Closer::Peer, name)).collect();
        assert_eq!(names.len(), 2 * CODES);
    }
}
