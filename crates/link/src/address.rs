//! Changes the client's addresses while the link runs, as when a phone moves to another network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::addressing::{IPV4_PREFIX_LENGTH, IPV6_PREFIX_LENGTH, NEAR_IPV4, NEAR_IPV6};
use crate::namespace::enter_network;
use crate::netlink::TcpMetrics;
use crate::{Error, netlink};

/// Each set of client addresses has its own prefix: removing an address would remove the others of
/// its prefix too.
const ADDRESSES_OF_A_PREFIX: u8 = 4;

/// Returns the client's addresses after this change (counted from 1), if it brings new ones.
pub(crate) fn near_addresses_after(change: usize, ipv6: bool) -> Vec<IpAddr> {
    let step = change as u8 * ADDRESSES_OF_A_PREFIX;
    let (mut ipv4, mut last) = (NEAR_IPV4.octets(), NEAR_IPV6.octets());
    ipv4[3] += step;
    last[15] += step;
    let ipv4 = IpAddr::from(Ipv4Addr::from(ipv4));
    [ipv4].into_iter().chain(ipv6.then_some(IpAddr::from(Ipv6Addr::from(last)))).collect()
}

/// The thread that changes addresses: the emulator's thread must not wait for the kernel.
#[derive(Debug)]
pub(crate) struct AddressChanger {
    thread: JoinHandle<Result<(), Error>>,
}

/// The device and its namespace.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) namespace: OwnedFd,
    pub(crate) index: u32,
    pub(crate) ipv6: bool,
    pub(crate) tcp: TcpMetrics,
}

impl AddressChanger {
    /// Starts the thread. The channel carries numbers of changes, from 1. The thread ends when the
    /// sender is dropped.
    pub(crate) fn start(device: Device) -> Result<(Self, mpsc::Sender<usize>), Error> {
        let (sender, changes) = mpsc::channel();
        let work = move || {
            enter_network(device.namespace.as_fd())
                .map_err(Error::system("enter the client's network namespace"))?;
            let mut current = near_addresses_after(0, device.ipv6);
            for change in changes {
                let next = near_addresses_after(change, device.ipv6);
                for (old, new) in current.iter().zip(&next) {
                    replace(&device, *old, *new)?;
                }
                current = next;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("link-address".into())
            .spawn(work)
            .map_err(Error::system("start a thread"))?;
        Ok((Self { thread }, sender))
    }

    /// Waits for the thread to end. The sender must have been dropped.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Adds the new address, changes the route to it, then removes the old address, so that the client
/// always has one.
fn replace(device: &Device, old: IpAddr, new: IpAddr) -> Result<(), Error> {
    let refused = || Error::system("give the client's end another address");
    let mut netlink = netlink::Socket::open().map_err(refused())?;
    let prefix_length = if new.is_ipv4() { IPV4_PREFIX_LENGTH } else { IPV6_PREFIX_LENGTH };
    netlink.add_address(device.index, new, prefix_length).map_err(refused())?;
    netlink.replace_default_route(device.index, new, &device.tcp).map_err(refused())?;
    netlink.remove_address(device.index, old, prefix_length).map_err(refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_has_its_own_addresses() {
        assert_eq!(near_addresses_after(0, true), [IpAddr::from(NEAR_IPV4), NEAR_IPV6.into()]);
        assert_eq!(
            near_addresses_after(1, true),
            ["10.77.0.5".parse::<IpAddr>().unwrap(), "fd77::5".parse().unwrap()]
        );
        assert_eq!(near_addresses_after(16, false), ["10.77.0.65".parse::<IpAddr>().unwrap()]);
    }
}
