//! TUN devices: one end of the link in each namespace.
#![expect(unsafe_code, reason = "TUNSETIFF is an ioctl")]

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::Error;

/// Name of the device in both namespaces.
pub(crate) const DEVICE: &str = "link0";

/// Opens a non-blocking TUN device in the calling thread's network namespace.
///
/// Packets have no prefix and no offloads (`IFF_VNET_HDR`), so the kernel segments and computes
/// checksums before the link reads them: they are as a wire would carry them.
pub(crate) fn open() -> Result<OwnedFd, Error> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd =
        rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => Error::TunNotPermitted(errno.into()),
            Errno::NOENT | Errno::NODEV | Errno::NXIO => Error::TunMissing(errno.into()),
            _ => Error::system("open /dev/net/tun")(errno),
        })?;
    attach(&fd).map_err(|errno| Error::namespace("make a TUN device", errno))?;
    Ok(fd)
}

fn attach(fd: &OwnedFd) -> Result<(), Errno> {
    let mut name = [0; libc::IFNAMSIZ];
    for (to, from) in name.iter_mut().zip(DEVICE.bytes()) {
        *to = from as libc::c_char;
    }
    let request = libc::ifreq {
        ifr_name: name,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short,
        },
    };
    // SAFETY: `request` is a valid `ifreq` with a zero-terminated name and lives across the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw const request) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
