//! A TCP connection as described by the kernel: `inet_diag_msg` with `tcp_info`, of
//! linux/inet_diag.h and linux/tcp.h.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::netlink::{attribute, u32_at, u64_at};
use crate::packets::Cell;

/// All states except listening, closed and TIME_WAIT, which have no `tcp_info`.
pub(super) const STATES: u32 = !((1 << LISTEN) | (1 << TIME_WAIT) | (1 << CLOSE)) & 0xfff;

const TIME_WAIT: u8 = 6;
const CLOSE: u8 = 7;
const LISTEN: u8 = 10;
/// State names by the kernel's number.
const STATE_NAMES: [&str; 12] = [
    "",
    "established",
    "syn-sent",
    "syn-received",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "close",
    "close-wait",
    "last-ack",
    "listen",
    "closing",
];

const MESSAGE_BYTES: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
/// The kernel's value for unlimited slow start.
const SSTHRESH_UNLIMITED: u32 = 0x7fff_ffff;

/// A connection between the two ends of the link.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) local_port: u16,
    pub(super) remote_port: u16,
    state: u8,
    info: Vec<u8>,
    congestion: String,
}

impl Connection {
    /// Returns `None` for a connection that stays at one end, and for a socket without further
    /// information.
    pub(super) fn parse(reply: &[u8]) -> Option<Self> {
        let message = reply.get(..MESSAGE_BYTES)?;
        let port = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let family = i32::from(message[0]);
        let (local, remote) =
            (address(family, &message[8..24])?, address(family, &message[24..40])?);
        if local == remote || local.is_loopback() {
            return None;
        }
        let attributes = &reply[MESSAGE_BYTES..];
        let congestion = attribute(attributes, INET_DIAG_CONG).unwrap_or_default();
        let congestion = congestion.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(Self {
            local_port: port(4),
            remote_port: port(6),
            state: message[1],
            info: attribute(attributes, INET_DIAG_INFO)?.to_vec(),
            congestion: String::from_utf8_lossy(congestion).into_owned(),
        })
    }
}

fn address(family: i32, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(IpAddr::from(<[u8; 4]>::try_from(bytes.get(..4)?).ok()?)),
        libc::AF_INET6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
        _ => None,
    }
}

/// Formats the columns from `state` on. Fields missing in an older kernel's shorter `tcp_info` are
/// empty.
impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = |at| u32_at(&self.info, at);
        let large = |at| u64_at(&self.info, at);
        write!(f, "{}", STATE_NAMES.get(usize::from(self.state)).unwrap_or(&""))?;
        let rtt = [small(68), small(72), small(8)];
        let windows =
            [small(80), small(76).filter(|packets| *packets < SSTHRESH_UNLIMITED), small(16)];
        let packets = [small(24), small(32), small(100)];
        for value in rtt.into_iter().chain(windows).chain(packets) {
            write!(f, ",{}", Cell(value))?;
        }
        let bytes = [large(120), large(128), large(200), large(208)];
        let (busy, receive_window_limited, send_buffer_limited, delivery_rate) =
            (large(168), large(176), large(184), large(160));
        for value in bytes.into_iter().chain([
            busy,
            receive_window_limited,
            send_buffer_limited,
            delivery_rate,
        ]) {
            write!(f, ",{}", Cell(value))?;
        }
        write!(f, ",{}", self.congestion)
    }
}

/// A reply of the kernel with a value of its own in each field that is read.
#[cfg(test)]
pub(super) fn example() -> Vec<u8> {
    let mut reply = vec![0; MESSAGE_BYTES];
    reply[0] = libc::AF_INET as u8;
    reply[1] = 1;
    reply[4..6].copy_from_slice(&40000u16.to_be_bytes());
    reply[6..8].copy_from_slice(&443u16.to_be_bytes());
    reply[8..12].copy_from_slice(&[10, 77, 0, 1]);
    reply[24..28].copy_from_slice(&[10, 77, 0, 2]);
    let mut info = vec![0; 232];
    for (at, value) in [
        (8, 204_000u32),
        (16, 1448),
        (24, 7),
        (32, 2),
        (68, 40_100),
        (72, 300),
        (76, 20),
        (80, 33),
        (100, 5),
    ] {
        info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    for (at, value) in [
        (120, 1001u64),
        (128, 1002),
        (160, 1003),
        (168, 1004),
        (176, 1005),
        (184, 1006),
        (200, 1007),
        (208, 1008),
    ] {
        info[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    for (kind, value) in [(INET_DIAG_INFO, info.as_slice()), (INET_DIAG_CONG, b"cubic\0")] {
        reply.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
        reply.extend_from_slice(&kind.to_ne_bytes());
        reply.extend_from_slice(value);
        reply.resize(reply.len().next_multiple_of(4), 0);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_comes_from_its_field() {
        let row = Connection::parse(&example()).unwrap().to_string();
        assert_eq!(
            row,
            "established,40100,300,204000,33,20,1448,7,2,5,1001,1002,1007,1008,1004,1005,1006,1003,cubic"
        );
    }

    #[test]
    fn unset_slow_start_threshold_is_empty() {
        let mut reply = example();
        let at = MESSAGE_BYTES + 4 + 76;
        reply[at..at + 4].copy_from_slice(&SSTHRESH_UNLIMITED.to_ne_bytes());
        assert!(
            Connection::parse(&reply)
                .unwrap()
                .to_string()
                .starts_with("established,40100,300,204000,33,,1448,")
        );
    }

    #[test]
    fn connection_within_one_end_is_ignored() {
        let mut same = example();
        same[24..28].copy_from_slice(&[10, 77, 0, 1]);
        assert!(Connection::parse(&same).is_none());
        let mut loopback = example();
        loopback[8..12].copy_from_slice(&[127, 0, 0, 1]);
        loopback[24..28].copy_from_slice(&[127, 0, 0, 2]);
        assert!(Connection::parse(&loopback).is_none());
        // An IPv6 socket with IPv4-mapped addresses.
        let mut mapped = example();
        mapped[0] = libc::AF_INET6 as u8;
        for at in [8, 24] {
            mapped[at..at + 16]
                .copy_from_slice(&"::ffff:127.0.0.1".parse::<Ipv6Addr>().unwrap().octets());
        }
        assert!(Connection::parse(&mapped).is_none());
        mapped[24..40].copy_from_slice(&"::ffff:10.77.0.1".parse::<Ipv6Addr>().unwrap().octets());
        mapped[8..24].copy_from_slice(&"::ffff:10.77.0.2".parse::<Ipv6Addr>().unwrap().octets());
        assert!(Connection::parse(&mapped).is_some());
    }

    #[test]
    fn reply_truncated_anywhere_does_not_panic() {
        let reply = example();
        for end in 0..reply.len() {
            if let Some(connection) = Connection::parse(&reply[..end]) {
                assert_eq!(connection.to_string().matches(',').count(), 18);
            }
        }
        // A kernel whose tcp_info ends before `bytes_sent`.
        let mut older = reply[..MESSAGE_BYTES + 4 + 192].to_vec();
        older[MESSAGE_BYTES..MESSAGE_BYTES + 2].copy_from_slice(&196u16.to_ne_bytes());
        let row = Connection::parse(&older).unwrap().to_string();
        assert_eq!(
            row,
            "established,40100,300,204000,33,20,1448,7,2,5,1001,1002,,,1004,1005,1006,1003,"
        );
    }
}
