//! Flows of packets, and counters per flow in a bounded table.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use crate::way::Way;

/// Maximum flows counted separately. Packets of further flows are counted together, so a port scan
/// cannot grow the table.
pub const MAX_FLOWS: usize = 4096;

/// Maximum extension headers followed before a packet counts as one without ports.
const MAX_IPV6_EXTENSIONS: usize = 8;

/// Flags of a TCP header, in its byte 13.
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;
/// Types of control messages.
const ICMP_ECHO_REQUEST: u8 = 8;
const ICMPV6_ECHO_REQUEST: u8 = 128;

/// An IP protocol number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv4's control messages.
    pub const ICMP: Self = Self(1);
    /// Has ports.
    pub const TCP: Self = Self(6);
    /// Has ports.
    pub const UDP: Self = Self(17);
    /// IPv6's control messages.
    pub const ICMPV6: Self = Self(58);
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ICMP => f.write_str("icmp"),
            Self::TCP => f.write_str("tcp"),
            Self::UDP => f.write_str("udp"),
            Self::ICMPV6 => f.write_str("icmpv6"),
            Self(number) => write!(f, "ip-{number}"),
        }
    }
}

/// Headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Upper-layer protocol.
    pub protocol: Protocol,
    /// Source and destination port. `None` for protocols without ports, and for fragments other
    /// than the first.
    pub ports: Option<(u16, u16)>,
}

/// A flow as seen from the link: both directions have the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Upper-layer protocol.
    pub protocol: Protocol,
    /// The client's address.
    pub near: IpAddr,
    /// The client's port.
    pub near_port: Option<u16>,
    /// The server's address.
    pub far: IpAddr,
    /// The server's port.
    pub far_port: Option<u16>,
}

/// Counters of one direction of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that reached the link.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Of these, lost on the link.
    pub packets_lost: u64,
    /// Of these, dropped because a queue was full.
    pub packets_queue_dropped: u64,
    /// Of these, dropped by a blocking rule.
    pub packets_blocked: u64,
    /// Of these, dropped by a policing rule.
    pub packets_policed: u64,
}

/// Counters of both directions of a flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pair {
    /// When the flow's first packet since the last start reached the link; `None` if there was
    /// none.
    pub since_ns: Option<u64>,
    /// Whether the link had seen the flow before the last start.
    pub is_earlier: bool,
    /// Client to server.
    pub up: Counters,
    /// Server to client.
    pub down: Counters,
}

impl Pair {
    /// Returns the counters of one direction.
    pub fn way(&mut self, way: Way) -> &mut Counters {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }
}

/// Counters per flow, at most [`MAX_FLOWS`] of them.
#[derive(Debug, Default)]
pub struct Table {
    flows: HashMap<Key, Pair>,
    beyond: Pair,
    unparsed: Pair,
}

/// The flow of a packet.
#[derive(Debug)]
pub struct Seen<'a> {
    /// `None` if the packet is not well-formed IP.
    pub key: Option<Key>,
    /// When the flow's first packet since the last start reached the link; 0 for flows that did not
    /// fit in the table.
    pub since_ns: u64,
    /// Whether the link had seen the flow before the last start.
    pub is_earlier: bool,
    /// Counters of the packet's direction.
    pub counters: &'a mut Counters,
}

impl Table {
    /// Returns the flow of a packet that reaches the link at `now_ns`.
    pub fn see(&mut self, packet: &[u8], way: Way, now_ns: u64) -> Seen<'_> {
        let Some(headers) = parse(packet) else {
            return Seen {
                key: None,
                since_ns: 0,
                is_earlier: false,
                counters: self.unparsed.way(way),
            };
        };
        let key = Key::new(&headers, way);
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&key) {
            return Seen {
                key: Some(key),
                since_ns: 0,
                is_earlier: false,
                counters: self.beyond.way(way),
            };
        }
        let pair = self.flows.entry(key).or_default();
        let since_ns = *pair.since_ns.get_or_insert(now_ns);
        Seen { key: Some(key), since_ns, is_earlier: pair.is_earlier, counters: pair.way(way) }
    }

    /// Starts again: existing flows become earlier ones, and their counters and age begin with
    /// their next packet.
    pub fn start(&mut self) {
        for pair in self.flows.values_mut() {
            *pair = Pair { is_earlier: true, ..Pair::default() };
        }
        (self.beyond, self.unparsed) = (Pair::default(), Pair::default());
    }

    /// Returns whether a packet of the client begins a flow that the link had not seen before the
    /// last start. Closed connections still send: TCP's last acknowledgments and resets, and ICMP
    /// errors for packets to a closed UDP port.
    pub fn begins_with(&self, packet: &[u8]) -> bool {
        let Some((headers, upper)) = split(packet) else { return false };
        let upper = upper.unwrap_or_default();
        let is_first = match headers.protocol {
            Protocol::TCP => {
                upper.get(13).is_some_and(|flags| flags & (TCP_SYN | TCP_ACK) == TCP_SYN)
            }
            Protocol::UDP => headers.ports.is_some(),
            Protocol::ICMP => upper.first() == Some(&ICMP_ECHO_REQUEST),
            Protocol::ICMPV6 => upper.first() == Some(&ICMPV6_ECHO_REQUEST),
            _ => true,
        };
        is_first
            && !self.flows.get(&Key::new(&headers, Way::Up)).is_some_and(|pair| pair.is_earlier)
    }

    /// Returns all flows with packets since the last start, sorted by key.
    pub fn sorted(&self) -> Vec<(Key, Pair)> {
        let mut flows: Vec<_> = self
            .flows
            .iter()
            .filter(|(_, pair)| pair.since_ns.is_some())
            .map(|(key, pair)| (*key, *pair))
            .collect();
        flows.sort_unstable_by_key(|(key, _)| *key);
        flows
    }

    /// Returns the counters of flows that did not fit in the table.
    pub fn beyond(&self) -> Pair {
        self.beyond
    }

    /// Returns the counters of packets that are not well-formed IPv4 or IPv6.
    pub fn unparsed(&self) -> Pair {
        self.unparsed
    }
}

impl Key {
    fn new(headers: &Headers, way: Way) -> Self {
        let (source_port, destination_port) = headers.ports.unzip();
        match way {
            Way::Up => Self {
                protocol: headers.protocol,
                near: headers.source,
                near_port: source_port,
                far: headers.destination,
                far_port: destination_port,
            },
            Way::Down => Self {
                protocol: headers.protocol,
                near: headers.destination,
                near_port: destination_port,
                far: headers.source,
                far_port: source_port,
            },
        }
    }
}

/// Parses addresses, protocol and ports of an IP packet. Returns `None` if it is too short or
/// neither IPv4 nor IPv6.
pub fn parse(packet: &[u8]) -> Option<Headers> {
    split(packet).map(|(headers, _)| headers)
}

/// Parses a packet like [`parse`], and returns the upper-layer bytes too; none for a later fragment
/// or a truncated header.
pub(crate) fn split(packet: &[u8]) -> Option<(Headers, Option<&[u8]>)> {
    match packet.first()? >> 4 {
        4 => split_ipv4(packet),
        6 => split_ipv6(packet),
        _ => None,
    }
}

fn split_ipv4(packet: &[u8]) -> Option<(Headers, Option<&[u8]>)> {
    let header_length = usize::from(packet[0] & 0x0f) * 4;
    if header_length < 20 || packet.len() < header_length {
        return None;
    }
    let fragment_offset = u16::from_be_bytes(array(packet, 6)?) & 0x1fff;
    let protocol = Protocol(packet[9]);
    let upper = packet.get(header_length..).filter(|_| fragment_offset == 0);
    let ports = upper.and_then(|upper| ports(protocol, upper));
    let headers = Headers {
        source: IpAddr::from(array::<4>(packet, 12)?),
        destination: IpAddr::from(array::<4>(packet, 16)?),
        protocol,
        ports,
    };
    Some((headers, upper))
}

fn split_ipv6(packet: &[u8]) -> Option<(Headers, Option<&[u8]>)> {
    let source = IpAddr::from(array::<16>(packet, 8)?);
    let destination = IpAddr::from(array::<16>(packet, 24)?);
    let (protocol, upper) = skip_extensions(packet[6], packet.get(40..)?);
    let ports = upper.and_then(|upper| ports(protocol, upper));
    Some((Headers { source, destination, protocol, ports }, upper))
}

/// Returns the upper-layer protocol and its bytes; no bytes for a later fragment or a truncated
/// header.
fn skip_extensions(first: u8, mut rest: &[u8]) -> (Protocol, Option<&[u8]>) {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    const DESTINATION_OPTIONS: u8 = 60;
    let mut next = first;
    for _ in 0..MAX_IPV6_EXTENSIONS {
        if !matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS) {
            return (Protocol(next), Some(rest));
        }
        let Some([following, length]) = array::<2>(rest, 0) else {
            return (Protocol(next), None);
        };
        let size = match next {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        let later_fragment = next == FRAGMENT
            && array(rest, 2).is_some_and(|field| u16::from_be_bytes(field) & 0xfff8 != 0);
        match rest.get(size..) {
            Some(after) if !later_fragment => rest = after,
            _ => return (Protocol(following), None),
        }
        next = following;
    }
    (Protocol(next), None)
}

fn ports(protocol: Protocol, upper: &[u8]) -> Option<(u16, u16)> {
    if !matches!(protocol, Protocol::TCP | Protocol::UDP) {
        return None;
    }
    Some((u16::from_be_bytes(array(upper, 0)?), u16::from_be_bytes(array(upper, 2)?)))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ipv4(
        source: [u8; 4],
        destination: [u8; 4],
        protocol: u8,
        options: usize,
        upper: &[u8],
    ) -> Vec<u8> {
        let mut packet = vec![0; 20 + options * 4];
        packet[0] = 0x40 | (5 + options as u8);
        packet[9] = protocol;
        packet[12..16].copy_from_slice(&source);
        packet[16..20].copy_from_slice(&destination);
        packet.extend_from_slice(upper);
        packet
    }

    fn ipv6(source: [u8; 16], destination: [u8; 16], next: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        packet.extend_from_slice(&source);
        packet.extend_from_slice(&destination);
        packet.extend_from_slice(rest);
        packet
    }

    fn upper(ports: (u16, u16)) -> Vec<u8> {
        let mut bytes = ports.0.to_be_bytes().to_vec();
        bytes.extend_from_slice(&ports.1.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes
    }

    proptest! {
        #[test]
        fn ipv4_fields_are_parsed_with_any_options(
            source: [u8; 4], destination: [u8; 4], ports: (u16, u16), options in 0usize..=10, udp: bool,
        ) {
            let protocol = if udp { Protocol::UDP } else { Protocol::TCP };
            let packet = ipv4(source, destination, protocol.0, options, &upper(ports));
            let expected = Headers { source: source.into(), destination: destination.into(), protocol, ports: Some(ports) };
            prop_assert_eq!(parse(&packet), Some(expected));
        }

        #[test]
        fn ipv6_fields_are_parsed_after_extension_headers(
            source: [u8; 16], destination: [u8; 16], ports: (u16, u16),
            extensions in prop::collection::vec((prop::sample::select(vec![0u8, 43, 44, 51, 60]), 0u8..4), 0..MAX_IPV6_EXTENSIONS),
        ) {
            let mut rest = upper(ports);
            let mut next = Protocol::UDP.0;
            for (kind, length) in extensions.into_iter().rev() {
                let size = match kind {
                    44 => 8,
                    51 => (usize::from(length) + 2) * 4,
                    _ => (usize::from(length) + 1) * 8,
                };
                let mut header = vec![0; size];
                header[0] = next;
                if kind != 44 {
                    header[1] = length;
                }
                header.extend_from_slice(&rest);
                rest = header;
                next = kind;
            }
            let packet = ipv6(source, destination, next, &rest);
            let expected =
                Headers { source: source.into(), destination: destination.into(), protocol: Protocol::UDP, ports: Some(ports) };
            prop_assert_eq!(parse(&packet), Some(expected));
        }

        #[test]
        fn any_bytes_and_any_truncation_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            for end in 0..=bytes.len() {
                let parsed = parse(&bytes[..end]);
                prop_assert!(parsed.is_none() || end >= 20);
            }
        }

        #[test]
        fn both_directions_of_a_flow_have_one_key(near: [u8; 4], far: [u8; 4], ports: (u16, u16)) {
            let mut table = Table::default();
            table.see(&ipv4(near, far, 17, 0, &upper(ports)), Way::Up, 0).counters.packets += 1;
            table.see(&ipv4(far, near, 17, 0, &upper((ports.1, ports.0))), Way::Down, 0).counters.packets += 1;
            let flows = table.sorted();
            prop_assert_eq!(flows.len(), 1);
            prop_assert_eq!((flows[0].0.near_port, flows[0].0.far_port), (Some(ports.0), Some(ports.1)));
            prop_assert_eq!((flows[0].1.up.packets, flows[0].1.down.packets), (1, 1));
        }
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let mut packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &upper((1, 2)));
        packet[7] = 1;
        assert_eq!(parse(&packet).unwrap().ports, None);
        let mut fragment = vec![17, 0, 0, 8, 0, 0, 0, 0];
        fragment.extend_from_slice(&upper((1, 2)));
        let parsed = parse(&ipv6([1; 16], [2; 16], 44, &fragment)).unwrap();
        assert_eq!((parsed.protocol, parsed.ports), (Protocol::UDP, None));
    }

    #[test]
    fn icmp_messages_have_no_ports() {
        assert_eq!(
            parse(&ipv4([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &[8, 0, 0, 0])).unwrap().ports,
            None
        );
        assert_eq!(
            parse(&ipv6([1; 16], [2; 16], 58, &[128, 0, 0, 0])).unwrap().protocol,
            Protocol::ICMPV6
        );
    }

    #[test]
    fn full_table_counts_the_rest_together() {
        let mut table = Table::default();
        for number in 0..MAX_FLOWS as u16 + 10 {
            table
                .see(&ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &upper((number, 443))), Way::Up, 0)
                .counters
                .packets += 1;
        }
        table
            .see(&ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &upper((0, 443))), Way::Up, 0)
            .counters
            .packets += 1;
        table.see(&[0x20; 40], Way::Down, 0).counters.packets += 1;
        assert_eq!(table.sorted().len(), MAX_FLOWS);
        assert_eq!(table.sorted()[0].1.up.packets, 2);
        assert_eq!(table.beyond().up.packets, 10);
        assert_eq!(table.unparsed().down.packets, 1);
    }

    #[test]
    fn first_packet_of_a_new_flow_is_distinguished_from_late_ones() {
        let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let tcp = |port, flags| {
            let mut header = upper((port, 443));
            header.extend_from_slice(&[0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
            ipv4(near, far, Protocol::TCP.0, 0, &header)
        };
        let udp = |port| ipv4(near, far, Protocol::UDP.0, 0, &upper((port, 443)));
        let icmp = |kind| ipv4(near, far, Protocol::ICMP.0, 0, &[kind, 0, 0, 0]);
        let mut table = Table::default();
        for first in [tcp(1, 0x02), udp(1), icmp(8)] {
            assert!(table.begins_with(&first));
        }
        table.see(&tcp(1, 0x02), Way::Up, 0);
        table.see(&udp(1), Way::Up, 0);
        table.start();
        // FIN, RST and data of the old connection, its retransmitted SYN, a datagram, an ICMP "port
        // unreachable", and a non-IP packet.
        for late in [
            tcp(1, 0x11),
            tcp(1, 0x04),
            tcp(1, 0x18),
            tcp(1, 0x02),
            udp(1),
            icmp(3),
            vec![0x20; 40],
        ] {
            assert!(!table.begins_with(&late), "{late:?}");
        }
        // An RST for a connection that the link has not seen.
        assert!(!table.begins_with(&tcp(2, 0x04)));
        assert!(table.begins_with(&tcp(2, 0x02)) && table.begins_with(&udp(2)));
        // A flow begun by the server is still new.
        table.see(&ipv4(far, near, Protocol::UDP.0, 0, &upper((443, 3))), Way::Down, 5);
        assert!(table.begins_with(&udp(3)));
    }

    #[test]
    fn earlier_flow_restarts_its_age_and_counters_after_the_start() {
        let packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &upper((9, 443)));
        let mut table = Table::default();
        table.see(&packet, Way::Up, 5).counters.packets += 1;
        table.see(&[0x20; 40], Way::Up, 6).counters.packets += 1;
        table.start();
        assert_eq!((table.sorted(), table.unparsed()), (Vec::new(), Pair::default()));
        let seen = table.see(&packet, Way::Up, 70);
        assert_eq!(
            (seen.since_ns, seen.is_earlier, *seen.counters),
            (70, true, Counters::default())
        );
        assert_eq!(table.see(&packet, Way::Up, 80).since_ns, 70);
    }

    #[test]
    fn flow_begins_with_its_first_packet_in_either_direction() {
        let mut table = Table::default();
        let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        table.see(&ipv4(near, far, 17, 0, &upper((9, 443))), Way::Up, 5);
        assert_eq!(table.see(&ipv4(far, near, 17, 0, &upper((443, 9))), Way::Down, 8).since_ns, 5);
        assert_eq!(table.see(&ipv4(near, far, 17, 0, &upper((10, 443))), Way::Up, 9).since_ns, 9);
    }
}
