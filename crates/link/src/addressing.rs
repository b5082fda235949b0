//! Addresses of the two ends.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The client's IPv4 address.
pub const NEAR_IPV4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The server's IPv4 address.
pub const FAR_IPV4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The client's IPv6 address.
pub const NEAR_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// The server's IPv6 address.
pub const FAR_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);

pub(crate) const IPV4_PREFIX_LENGTH: u8 = 30;
pub(crate) const IPV6_PREFIX_LENGTH: u8 = 126;
