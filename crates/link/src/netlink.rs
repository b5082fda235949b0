//! The few netlink requests that a link needs, so that no `ip` or `ss` program has to be installed.
//!
//! A socket applies to the network namespace in which it was opened.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice};

/// Buffer size for one datagram of a dump.
const RECEIVE_BYTES: usize = 64 * 1024;

// Attribute and structure numbers of linux/rtnetlink.h, if_link.h and gen_stats.h that libc does
// not define.
const RTAX_INITCWND: u16 = 11;
const RTAX_CC_ALGO: u16 = 16;
const IFLA_STATS64: u16 = 23;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const ATTRIBUTE_TYPE_MASK: u16 = 0x3fff;
const NLA_F_NESTED: u16 = 0x8000;
const HEADER_BYTES: usize = 16;
// Of linux/sock_diag.h and inet_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const WANT_TCP_INFO: u8 = 1 << 1;
const WANT_CONGESTION: u8 = 1 << 3;
const SOCKET_ID_BYTES: usize = 48;

/// An rtnetlink or sock_diag socket of one network namespace.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

/// Initial parameters of TCP connections over a route, in both roles. `None`: the kernel's default.
///
/// As a route attribute, a congestion control needs no entry in `tcp_allowed_congestion_control`,
/// which applies to the whole machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct TcpMetrics {
    pub(crate) congestion: Option<String>,
    /// Initial congestion window in segments.
    pub(crate) initial_window: Option<u32>,
}

/// Packets dropped by the kernel at a device, outside the link's own counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceDrops {
    /// Packets sent into the device but not read: the device's ring or its queue was full.
    pub(crate) transmit: u64,
    /// Packets written into the device but not accepted by the kernel.
    pub(crate) receive: u64,
}

impl DeviceDrops {
    pub(crate) fn since(self, start: Self) -> Self {
        Self { transmit: self.transmit - start.transmit, receive: self.receive - start.receive }
    }
}

impl Socket {
    pub(crate) fn open() -> Result<Self, Errno> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Opens a socket for queries about sockets instead of devices.
    pub(crate) fn open_sock_diag() -> Result<Self, Errno> {
        let protocol = Some(rustix::net::netlink::SOCK_DIAG);
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Returns `inet_diag_msg` with attributes for each TCP socket of the family in one of the
    /// states, one bit each.
    pub(crate) fn tcp_sockets(&mut self, family: u8, states: u32) -> Result<Vec<Vec<u8>>, Errno> {
        let mut message = Message::new(SOCK_DIAG_BY_FAMILY, 0);
        message.push(&[family, libc::IPPROTO_TCP as u8, WANT_TCP_INFO | WANT_CONGESTION, 0]);
        message.push(&states.to_ne_bytes());
        message.push(&[0; SOCKET_ID_BYTES]);
        self.dump(message, SOCK_DIAG_BY_FAMILY)
    }

    pub(crate) fn device_index(name: &str) -> Result<u32, Errno> {
        let any = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        netdevice::name_to_index(any, name)
    }

    /// Brings the device up, after setting `mtu` and `transmit_queue_packets` if given.
    pub(crate) fn set_up(&mut self, index: u32, settings: Option<(u32, u32)>) -> Result<(), Errno> {
        if let Some((mtu, transmit_queue_packets)) = settings {
            let mut message = link_message(index, 0, 0);
            message.attribute(libc::IFLA_MTU, &mtu.to_ne_bytes());
            message.attribute(libc::IFLA_TXQLEN, &transmit_queue_packets.to_ne_bytes());
            self.request(message)?;
        }
        self.request(link_message(index, libc::IFF_UP as u32, libc::IFF_UP as u32))
    }

    /// Adds an address without the kernel's route for its prefix.
    pub(crate) fn add_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix_length: u8,
    ) -> Result<(), Errno> {
        let mut message = Message::new(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL);
        message.push(&[family(address), prefix_length, 0, libc::RT_SCOPE_UNIVERSE]);
        message.push(&index.to_ne_bytes());
        let octets = octets(address);
        message.attribute(libc::IFA_LOCAL, &octets);
        message.attribute(libc::IFA_ADDRESS, &octets);
        // No duplicate address detection: the link has no other hosts, and it takes a second.
        message.attribute(
            libc::IFA_FLAGS,
            &(libc::IFA_F_NOPREFIXROUTE | libc::IFA_F_NODAD).to_ne_bytes(),
        );
        self.request(message)
    }

    /// Removes an address from the device.
    pub(crate) fn remove_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix_length: u8,
    ) -> Result<(), Errno> {
        let mut message = Message::new(libc::RTM_DELADDR, 0);
        message.push(&[family(address), prefix_length, 0, libc::RT_SCOPE_UNIVERSE]);
        message.push(&index.to_ne_bytes());
        let octets = octets(address);
        message.attribute(libc::IFA_LOCAL, &octets);
        message.attribute(libc::IFA_ADDRESS, &octets);
        self.request(message)
    }

    /// Routes all traffic of the address's family over the device, from `source`.
    pub(crate) fn add_default_route(
        &mut self,
        index: u32,
        source: IpAddr,
        tcp: &TcpMetrics,
    ) -> Result<(), Errno> {
        self.default_route(index, source, tcp, libc::NLM_F_CREATE | libc::NLM_F_EXCL)
    }

    /// Replaces the default route.
    pub(crate) fn replace_default_route(
        &mut self,
        index: u32,
        source: IpAddr,
        tcp: &TcpMetrics,
    ) -> Result<(), Errno> {
        self.default_route(index, source, tcp, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
    }

    fn default_route(
        &mut self,
        index: u32,
        source: IpAddr,
        tcp: &TcpMetrics,
        flags: i32,
    ) -> Result<(), Errno> {
        let mut message = Message::new(libc::RTM_NEWROUTE, flags);
        let no_prefix = [0, 0, 0];
        message.push(&[family(source)]);
        message.push(&no_prefix);
        message.push(&[
            libc::RT_TABLE_MAIN,
            libc::RTPROT_STATIC,
            libc::RT_SCOPE_LINK,
            libc::RTN_UNICAST,
        ]);
        message.push(&0u32.to_ne_bytes());
        message.attribute(libc::RTA_OIF, &index.to_ne_bytes());
        message.attribute(libc::RTA_PREFSRC, &octets(source));
        let mut metrics = Message::default();
        if let Some(segments) = tcp.initial_window {
            metrics.attribute(RTAX_INITCWND, &segments.to_ne_bytes());
        }
        if let Some(name) = &tcp.congestion {
            let mut zero_terminated = name.as_bytes().to_vec();
            zero_terminated.push(0);
            metrics.attribute(RTAX_CC_ALGO, &zero_terminated);
        }
        if !metrics.bytes.is_empty() {
            message.attribute(libc::RTA_METRICS | NLA_F_NESTED, &metrics.bytes);
        }
        self.request(message)
    }

    /// Returns the drops at the device and at its queueing discipline.
    pub(crate) fn device_drops(&mut self, index: u32) -> Result<DeviceDrops, Errno> {
        let mut drops = DeviceDrops::default();
        for reply in self.dump(link_message(0, 0, 0), libc::RTM_GETLINK)? {
            if i32_at(&reply, 4) == Some(index as i32) {
                let stats = attribute(reply.get(16..).unwrap_or_default(), IFLA_STATS64);
                // struct rtnl_link_stats64: the seventh and eighth counters are rx_dropped and
                // tx_dropped.
                drops.receive += stats.and_then(|stats| u64_at(stats, 6 * 8)).unwrap_or(0);
                drops.transmit += stats.and_then(|stats| u64_at(stats, 7 * 8)).unwrap_or(0);
            }
        }
        let mut message = Message::new(libc::RTM_GETQDISC, 0);
        message.push(&[0; 20]);
        for reply in self.dump(message, libc::RTM_GETQDISC)? {
            if i32_at(&reply, 4) == Some(index as i32) {
                let stats = attribute(reply.get(20..).unwrap_or_default(), TCA_STATS2);
                // struct gnet_stats_queue: the third counter is drops.
                let queue = stats.and_then(|stats| attribute(stats, TCA_STATS_QUEUE));
                drops.transmit += queue
                    .and_then(|queue| i32_at(queue, 8))
                    .map_or(0, |drops| u64::from(drops as u32));
            }
        }
        Ok(drops)
    }

    /// Sends and waits for the kernel's acknowledgement.
    fn request(&mut self, message: Message) -> Result<(), Errno> {
        self.send(message, libc::NLM_F_ACK)?;
        let mut buffer = vec![0; RECEIVE_BYTES];
        loop {
            let (received, _) = rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::empty())?;
            for (kind, body) in messages(&buffer[..received]) {
                if i32::from(kind) == libc::NLMSG_ERROR {
                    return match i32_at(body, 0).unwrap_or(-libc::EBADMSG) {
                        0 => Ok(()),
                        negative => Err(Errno::from_raw_os_error(-negative)),
                    };
                }
            }
        }
    }

    fn dump(&mut self, mut message: Message, kind: u16) -> Result<Vec<Vec<u8>>, Errno> {
        message.set_kind(kind);
        self.send(message, libc::NLM_F_DUMP)?;
        let mut replies = Vec::new();
        let mut buffer = vec![0; RECEIVE_BYTES];
        loop {
            let (received, _) = rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::empty())?;
            for (kind, body) in messages(&buffer[..received]) {
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(replies),
                    libc::NLMSG_ERROR => {
                        return Err(Errno::from_raw_os_error(
                            -i32_at(body, 0).unwrap_or(-libc::EBADMSG),
                        ));
                    }
                    _ => replies.push(body.to_vec()),
                }
            }
        }
    }

    fn send(&mut self, mut message: Message, flags: i32) -> Result<(), Errno> {
        self.sequence += 1;
        message.finish(flags as u16, self.sequence);
        rustix::net::send(&self.fd, &message.bytes, SendFlags::empty())?;
        Ok(())
    }
}

fn link_message(index: u32, flags: u32, change: u32) -> Message {
    let mut message = Message::new(libc::RTM_NEWLINK, 0);
    message.push(&[0; 4]);
    message.push(&index.to_ne_bytes());
    message.push(&flags.to_ne_bytes());
    message.push(&change.to_ne_bytes());
    message
}

/// `nlmsghdr`, a fixed part, then attributes; all in host byte order and aligned to 4.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: i32) -> Self {
        let mut message = Self { bytes: vec![0; HEADER_BYTES] };
        message.set_kind(kind);
        message.bytes[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
        message
    }

    fn set_kind(&mut self, kind: u16) {
        self.bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.push(&((4 + value.len()) as u16).to_ne_bytes());
        self.push(&kind.to_ne_bytes());
        self.push(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(&mut self, flags: u16, sequence: u32) {
        let flags =
            u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | flags | libc::NLM_F_REQUEST as u16;
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }
}

/// Iterates over the messages in a datagram: kind and body.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = i32_at(bytes, 0)? as usize;
        let message = bytes.get(..length).filter(|_| length >= HEADER_BYTES)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([message[4], message[5]]), &message[HEADER_BYTES..]))
    })
}

pub(crate) fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let header = bytes.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_TYPE_MASK;
        let value = bytes.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
