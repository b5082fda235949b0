//! Transport header fields of a packet, as shown in a trace.

use std::fmt;

use crate::flow::{self, Protocol};

/// DNS is the one protocol on a link that is neither TCP nor QUIC and whose first byte is random.
const DNS_PORT: u16 = 53;

/// Parsed header fields; small, so that recording a trace does not allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Description {
    /// `None` if the packet is not well-formed IP.
    pub(super) protocol: Option<Protocol>,
    /// Source and destination port.
    pub(super) ports: Option<(u16, u16)>,
    /// Length after the TCP or UDP header.
    pub(super) payload: Option<u16>,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Other,
    Tcp { flags: u8, sequence: u32, acknowledgement: u32 },
    Quic(&'static str),
}

impl Description {
    pub(super) fn of(packet: &[u8]) -> Self {
        let nothing = Self { protocol: None, ports: None, payload: None, kind: Kind::Other };
        let Some((headers, upper)) = flow::split(packet) else {
            return nothing;
        };
        let known = Self { protocol: Some(headers.protocol), ports: headers.ports, ..nothing };
        let described = upper.and_then(|upper| match headers.protocol {
            Protocol::TCP => tcp(upper),
            Protocol::UDP => udp(upper, headers.ports),
            _ => None,
        });
        described.map_or(known, |(kind, payload)| Self { kind, payload: Some(payload), ..known })
    }
}

fn tcp(segment: &[u8]) -> Option<(Kind, u16)> {
    let header = segment.get(..20)?;
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let payload = segment.get(usize::from(header[12] >> 4) * 4..)?;
    Some((
        Kind::Tcp { flags: header[13], sequence: number(4), acknowledgement: number(8) },
        payload.len() as u16,
    ))
}

fn udp(datagram: &[u8], ports: Option<(u16, u16)>) -> Option<(Kind, u16)> {
    let payload = datagram.get(8..)?;
    let is_dns =
        ports.is_some_and(|(source, destination)| source == DNS_PORT || destination == DNS_PORT);
    let kind = if is_dns { None } else { quic(payload) };
    Some((kind.map_or(Kind::Other, Kind::Quic), payload.len() as u16))
}

/// Kind of the first QUIC packet in a datagram; coalesced packets are ignored.
fn quic(datagram: &[u8]) -> Option<&'static str> {
    const LONG_HEADER: u8 = 0x80;
    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return Some("short");
    }
    let version = u32::from_be_bytes(datagram.get(1..5)?.try_into().ok()?);
    let kind = (first >> 4) & 0b11;
    // RFC 9000 section 17.2 and RFC 9369 section 3.2.
    let kinds = match version {
        0 => return Some("version-negotiation"),
        1 => ["initial", "0rtt", "handshake", "retry"],
        0x6b33_43cf => ["retry", "initial", "0rtt", "handshake"],
        _ => return None,
    };
    Some(kinds[usize::from(kind)])
}

/// Formats the column `kind`: TCP flags as letters, QUIC packet types as words, otherwise nothing.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: [(u8, &str); 5] =
            [(0x02, "S"), (0x01, "F"), (0x04, "R"), (0x08, "P"), (0x10, "A")];
        match self {
            Self::Other => Ok(()),
            Self::Quic(kind) => f.write_str(kind),
            Self::Tcp { flags, .. } => LETTERS
                .iter()
                .filter(|(bit, _)| flags & bit != 0)
                .try_for_each(|(_, letter)| f.write_str(letter)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(protocol: Protocol, upper: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[9] = protocol.0;
        packet.extend_from_slice(upper);
        packet
    }

    fn datagram(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut upper = [ports.0.to_be_bytes(), ports.1.to_be_bytes(), [0; 2], [0; 2]].concat();
        upper.extend_from_slice(payload);
        packet(Protocol::UDP, &upper)
    }

    fn quic_kind(first: u8, version: u32) -> String {
        let mut payload = vec![first];
        payload.extend_from_slice(&version.to_be_bytes());
        payload.resize(1200, 0);
        let described = Description::of(&datagram((40000, 443), &payload));
        assert_eq!(described.payload, Some(1200));
        described.kind.to_string()
    }

    #[test]
    fn long_header_types_depend_on_the_version() {
        for (bits, v1, v2) in [
            (0, "initial", "retry"),
            (1, "0rtt", "initial"),
            (2, "handshake", "0rtt"),
            (3, "retry", "handshake"),
        ] {
            // The lower four bits are protected, and the fixed bit may be greased (RFC 9287).
            for others in [0x80, 0xc0, 0xcf] {
                assert_eq!(quic_kind(others | (bits << 4), 1), v1);
                assert_eq!(quic_kind(others | (bits << 4), 0x6b33_43cf), v2);
            }
        }
        assert_eq!(quic_kind(0xc5, 0), "version-negotiation");
        assert_eq!(quic_kind(0xc5, 0x1a2a_3a4a), "", "an unknown version");
        assert_eq!(quic_kind(0x41, 1), "short");
    }

    #[test]
    fn dns_and_empty_datagrams_have_no_quic_kind() {
        assert_eq!(
            Description::of(&datagram((40000, 53), &[0xc0, 0, 0, 0, 1, 9])).kind,
            Kind::Other
        );
        assert_eq!(Description::of(&datagram((53, 40000), &[0x12, 0x34])).kind, Kind::Other);
        assert_eq!(Description::of(&datagram((40000, 443), &[])).kind, Kind::Other);
    }

    #[test]
    fn segment_with_options_has_flags_numbers_and_payload() {
        let mut segment = [40000u16.to_be_bytes(), 443u16.to_be_bytes()].concat();
        segment.extend_from_slice(&0x0102_0304u32.to_be_bytes());
        segment.extend_from_slice(&0xf1f2_f3f4u32.to_be_bytes());
        segment.extend_from_slice(&[0x80, 0x12, 0, 0, 0, 0, 0, 0]);
        segment.extend_from_slice(&[1; 12]);
        segment.extend_from_slice(b"hello");
        let described = Description::of(&packet(Protocol::TCP, &segment));
        assert_eq!((described.ports, described.payload), (Some((40000, 443)), Some(5)));
        assert_eq!(
            described.kind,
            Kind::Tcp { flags: 0x12, sequence: 0x0102_0304, acknowledgement: 0xf1f2_f3f4 }
        );
        assert_eq!(described.kind.to_string(), "SA");
        let kind = |flags| Kind::Tcp { flags, sequence: 0, acknowledgement: 0 }.to_string();
        assert_eq!(
            [kind(0x02), kind(0x18), kind(0x11), kind(0x14), kind(0xff)],
            ["S", "PA", "FA", "RA", "SFRPA"]
        );
    }

    #[test]
    fn packet_without_ports_has_no_payload() {
        let described = Description::of(&packet(Protocol::ICMP, &[8, 0, 0, 0]));
        assert_eq!(
            (described.protocol, described.ports, described.payload),
            (Some(Protocol::ICMP), None, None)
        );
        assert_eq!(Description::of(&[0x20; 40]).protocol, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_described_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), tcp: bool) {
            Description::of(&bytes);
            let protocol = if tcp { Protocol::TCP } else { Protocol::UDP };
            let described = Description::of(&packet(protocol, &bytes));
            prop_assert!(usize::from(described.payload.unwrap_or(0)) <= bytes.len());
        }
    }
}
