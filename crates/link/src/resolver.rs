//! Name lookup of commands on the link: the machine's is hidden, and a server on the link is used
//! instead.
//!
//! The files are on a memory file system, which loses its name once they are bind-mounted over the
//! machine's files, in a mount namespace of the commands: nothing is written outside.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::{Error, FAR_IPV4, FAR_IPV6, NEAR_IPV4, NEAR_IPV6};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
const NSSWITCH: &str = "/etc/nsswitch.conf";
/// Temporary mount point of the memory file system. The commands get their own /proc afterwards.
const TEMPORARY_MOUNT: &str = "/proc";
/// Socket folder of a daemon that answers before any file is read; it runs outside the link.
const NSCD: &str = "/run/nscd";
const LOCALHOST_ONLY: &str = "127.0.0.1 localhost\n::1 localhost\n";

/// Checks that the commands can reach the resolver.
pub(crate) fn check(resolver: IpAddr) -> Result<(), Error> {
    let ends: [IpAddr; 4] = [FAR_IPV4.into(), FAR_IPV6.into(), NEAR_IPV4.into(), NEAR_IPV6.into()];
    if resolver.is_loopback() || ends.contains(&resolver) {
        Ok(())
    } else {
        Err(Error::ResolverElsewhere(resolver))
    }
}

/// Changes the view of the calling thread and its children. It must be in a separate mount
/// namespace.
pub(crate) fn put_in_place(resolver: IpAddr) -> Result<(), Error> {
    let denied = |errno| Error::namespace("mount files for --resolver", errno);
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(denied)?;
    // Read before the files are covered.
    let nsswitch = std::fs::read_to_string(NSSWITCH).map(|text| only_files_and_dns(&text));
    mount_memory(TEMPORARY_MOUNT).map_err(denied)?;
    let bound =
        [(RESOLV_CONF, format!("nameserver {resolver}\n")), (HOSTS, LOCALHOST_ONLY.to_owned())]
            .into_iter()
            // A machine without this file reads the other files and uses DNS anyway.
            .chain(nsswitch.ok().map(|text| (NSSWITCH, text)))
            .try_for_each(|(path, text)| bind(path, &text));
    rustix::mount::unmount(TEMPORARY_MOUNT, UnmountFlags::DETACH).map_err(denied)?;
    if Path::new(NSCD).is_dir() {
        mount_memory(NSCD).map_err(denied)?;
    }
    bound
}

fn mount_memory(at: &str) -> Result<(), Errno> {
    rustix::mount::mount(
        "tmpfs",
        at,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        Some(c"mode=755"),
    )
}

fn bind(path: &'static str, text: &str) -> Result<(), Error> {
    let name = Path::new(path).file_name().expect("invariant: the constants above name files");
    let source = Path::new(TEMPORARY_MOUNT).join(name);
    std::fs::write(&source, text).map_err(Error::system("write a file for --resolver"))?;
    rustix::mount::mount_bind(&source, path).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => {
            Error::ResolverFileMissing { path, source: io::Error::from(errno) }
        }
        _ => Error::namespace("mount a file for --resolver", errno),
    })
}

/// Returns the machine's configuration with only files and DNS as sources for hosts: other sources
/// may contact a daemon outside the link.
fn only_files_and_dns(nsswitch: &str) -> String {
    let others = nsswitch.lines().filter(|line| !line.trim_start().starts_with("hosts:"));
    others.chain(["hosts: files dns"]).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolver_outside_of_the_link_is_refused() {
        for address in ["10.77.0.2", "fd77::2", "127.0.0.1", "::1"] {
            check(address.parse().unwrap()).unwrap();
        }
        let error = check("192.0.2.1".parse().unwrap()).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(
            error.to_string().contains("192.0.2.1") && error.to_string().contains("10.77.0.2"),
            "{error}"
        );
    }

    #[test]
    fn nsswitch_allows_only_files_and_dns_for_hosts() {
        let machine = "passwd: files systemd\nhosts:  mymachines resolve [!UNAVAIL=return] files \
            dns\n# end\n";
        assert_eq!(only_files_and_dns(machine), "passwd: files systemd\n# end\nhosts: files dns\n");
        assert_eq!(only_files_and_dns(""), "hosts: files dns\n");
    }
}
