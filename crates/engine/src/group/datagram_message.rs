//! Messages that carry datagrams to a worker of another process.
//!
//! A message begins with two bytes that name the format. For each datagram there follow, with
//! integers in network order:
//!
//! | bytes | |
//! |---|---|
//! | 2 | length of the datagram |
//! | 1 | index of the socket that received it |
//! | 1 | bits 0 and 1: ECN; 2: the remote address is IPv6; 3: there is a local address; 4: that one is IPv6 |
//! | 4 or 16, and 2 | remote address and port |
//! | 4 | scope of the remote address, if it is IPv6 |
//! | 4 or 16 | local address, if there is one |
//! | | the datagram |
//!
//! Only processes of the same user can send messages. They are still parsed as untrusted input.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use bytes::BytesMut;

use crate::transport::{Datagram, Ecn};

/// Format name and version.
const FORMAT: [u8; 2] = [b'P', 1];
/// Maximum size of a message. A queue of ten, the kernel's default, stays within the default limit
/// on a sender's memory.
pub(super) const LARGEST: usize = 32 << 10;

const ECN: u8 = 0b11;
const REMOTE_IS_V6: u8 = 1 << 2;
const HAS_LOCAL: u8 = 1 << 3;
const LOCAL_IS_V6: u8 = 1 << 4;

/// Adds a datagram to a message, which may be empty. Returns whether it fitted.
pub(super) fn push(message: &mut Vec<u8>, socket: usize, datagram: &Datagram) -> bool {
    const LONGEST_HEAD: usize = 4 + 16 + 2 + 4 + 16;
    let (Ok(length), Ok(socket)) = (u16::try_from(datagram.data.len()), u8::try_from(socket))
    else {
        return false;
    };
    if message.len().max(FORMAT.len()) + LONGEST_HEAD + datagram.data.len() > LARGEST {
        return false;
    }
    if message.is_empty() {
        message.extend_from_slice(&FORMAT);
    }
    let ecn = match datagram.ecn {
        None => 0,
        Some(Ecn::Ect0) => 1,
        Some(Ecn::Ect1) => 2,
        Some(Ecn::Ce) => 3,
    };
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    let flags = ecn
        | flag(datagram.remote.is_ipv6(), REMOTE_IS_V6)
        | flag(datagram.local_ip.is_some(), HAS_LOCAL)
        | flag(datagram.local_ip.is_some_and(|ip| ip.is_ipv6()), LOCAL_IS_V6);
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(&[socket, flags]);
    push_ip(message, datagram.remote.ip());
    message.extend_from_slice(&datagram.remote.port().to_be_bytes());
    if let SocketAddr::V6(remote) = datagram.remote {
        message.extend_from_slice(&remote.scope_id().to_be_bytes());
    }
    if let Some(local) = datagram.local_ip {
        push_ip(message, local);
    }
    message.extend_from_slice(&datagram.data);
    true
}

fn push_ip(message: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => message.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => message.extend_from_slice(&ip.octets()),
    }
}

/// Returns the datagrams of a message, each with the index of its socket. Stops at malformed bytes.
pub(super) fn datagrams(message: &[u8]) -> impl Iterator<Item = (usize, Datagram)> + '_ {
    let mut rest = message.strip_prefix(&FORMAT).unwrap_or_default();
    std::iter::from_fn(move || {
        let (datagram, after) = parse(rest)?;
        rest = after;
        Some(datagram)
    })
}

fn parse(mut rest: &[u8]) -> Option<((usize, Datagram), &[u8])> {
    let [high, low, socket, flags] = take(&mut rest)?;
    let remote = take_ip(&mut rest, flags & REMOTE_IS_V6 != 0)?;
    let port = u16::from_be_bytes(take(&mut rest)?);
    let remote = match remote {
        IpAddr::V4(_) => SocketAddr::new(remote, port),
        IpAddr::V6(ip) => {
            SocketAddrV6::new(ip, port, 0, u32::from_be_bytes(take(&mut rest)?)).into()
        }
    };
    let local_ip = if flags & HAS_LOCAL != 0 {
        Some(take_ip(&mut rest, flags & LOCAL_IS_V6 != 0)?)
    } else {
        None
    };
    let ecn = match flags & ECN {
        1 => Some(Ecn::Ect0),
        2 => Some(Ecn::Ect1),
        3 => Some(Ecn::Ce),
        _ => None,
    };
    let (data, rest) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
    Some(((socket.into(), Datagram { remote, local_ip, ecn, data: BytesMut::from(data) }), rest))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

fn take_ip(rest: &mut &[u8], is_v6: bool) -> Option<IpAddr> {
    Some(if is_v6 {
        Ipv6Addr::from(take::<16>(rest)?).into()
    } else {
        Ipv4Addr::from(take::<4>(rest)?).into()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Parts = (SocketAddr, Option<IpAddr>, Option<Ecn>, Vec<u8>);

    fn parts(datagram: &Datagram) -> Parts {
        (datagram.remote, datagram.local_ip, datagram.ecn, datagram.data.to_vec())
    }

    fn any_datagram() -> impl Strategy<Value = (usize, Parts)> {
        let ecn = prop_oneof![
            Just(None),
            Just(Some(Ecn::Ect0)),
            Just(Some(Ecn::Ect1)),
            Just(Some(Ecn::Ce))
        ];
        let remote =
            (any::<IpAddr>(), any::<u16>(), any::<u32>()).prop_map(|(ip, port, scope)| match ip {
                IpAddr::V4(_) => SocketAddr::new(ip, port),
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
            });
        let data = proptest::collection::vec(any::<u8>(), 0..2000);
        (0..256_usize, (remote, any::<Option<IpAddr>>(), ecn, data))
    }

    fn message(all: &[(usize, Parts)]) -> Vec<u8> {
        let mut message = Vec::new();
        for (socket, (remote, local_ip, ecn, data)) in all {
            let datagram = Datagram {
                remote: *remote,
                local_ip: *local_ip,
                ecn: *ecn,
                data: BytesMut::from(&data[..]),
            };
            assert!(push(&mut message, *socket, &datagram));
        }
        message
    }

    proptest! {
        #[test]
        fn datagrams_come_out_as_they_went_in(all in proptest::collection::vec(any_datagram(), 0..10)) {
            let message = message(&all);
            let out: Vec<_> = datagrams(&message).map(|(socket, datagram)| (socket, parts(&datagram))).collect();
            prop_assert_eq!(out, all);
        }

        #[test]
        fn truncated_message_ends_with_its_last_whole_datagram(all in proptest::collection::vec(any_datagram(), 1..4)) {
            let message = message(&all);
            for length in 0..message.len() {
                let out: Vec<_> = datagrams(&message[..length]).map(|(socket, datagram)| (socket, parts(&datagram))).collect();
                prop_assert!(out.len() < all.len());
                prop_assert_eq!(&out[..], &all[..out.len()]);
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&FORMAT, &bytes[..]].concat();
            prop_assert!(datagrams(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn other_format_has_no_datagrams() {
        assert_eq!(datagrams(&[b'P', 2, 0, 0, 0, 0, 1, 2, 3, 4, 0, 1]).count(), 0);
        assert_eq!(datagrams(&[]).count(), 0);
    }

    #[test]
    fn message_is_bounded() {
        let datagram = Datagram {
            remote: ([127, 0, 0, 1], 1).into(),
            local_ip: None,
            ecn: None,
            data: BytesMut::zeroed(1200),
        };
        let mut message = Vec::new();
        let count = std::iter::repeat_with(|| push(&mut message, 0, &datagram))
            .take_while(|fits| *fits)
            .count();
        assert_eq!(datagrams(&message).count(), count);
        assert!(message.len() <= LARGEST && count > 20, "{count}");
        assert!(!push(
            &mut Vec::new(),
            0,
            &Datagram { data: BytesMut::zeroed(LARGEST), ..datagram }
        ));
    }
}
