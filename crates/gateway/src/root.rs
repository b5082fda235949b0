//! The folder that is served, as the kernel sees it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::file_body::{self, OpenFile};
use crate::file_state::{FileState, Variant};

/// How often a file is tried to be opened while others are renamed.
const OPEN_ATTEMPTS: usize = 16;
/// Files up to this size are read whole when they are opened; larger ones while they are sent.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;
/// Twice the longest tick of the kernel's clock: a file that changes twice within a tick has the same times after both.
const TICK: Duration = Duration::from_millis(20);
/// The same for file systems that keep whole seconds; FAT keeps every second one.
const COARSE_TICK: Duration = Duration::from_secs(4);

/// Types of file systems whose state is in this machine's memory, or on its disks: the state of an open file is there without
/// waiting. Elsewhere, as on NFS, it may have to be asked for.
const LOCAL: [u32; 16] = [
    0x0000_4d44, // FAT
    0x0000_9660, // ISO 9660
    0x0000_ef53, // ext2, ext3, ext4
    0x0102_1994, // tmpfs
    0x2011_bab0, // exFAT
    0x2fc1_2fc1, // ZFS
    0x3153_464a, // JFS
    0x5846_5342, // XFS
    0x7366_746e, // NTFS
    0x7371_7368, // SquashFS
    0x794c_7630, // overlayfs
    0x8584_58f6, // ramfs
    0x9123_683e, // Btrfs
    0xca45_1a4e, // bcachefs
    0xe0f5_e1e2, // EROFS
    0xf2f5_2010, // F2FS
];

/// A folder. No path leads out of it, whatever its spelling: the kernel resolves each path below the folder, and so it does symbolic
/// links, unless they may lead anywhere.
pub(crate) struct Root {
    folder: OwnedFd,
    is_local: bool,
    resolve: ResolveFlags,
}

/// Whether to wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Only what is in memory. Any error but those of [`is_definite`] means that one has to wait.
    Memory,
    /// As long as it takes.
    Disk,
}

/// A file that can be served.
pub(crate) struct Opened {
    pub(crate) identity: Identity,
    /// Whether any later change shows in the identity.
    pub(crate) is_settled: bool,
    /// Whether [`Root::identify`] can tell what becomes of it.
    pub(crate) can_be_checked: bool,
    pub(crate) state: FileState,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    Small(Bytes),
    Large(OpenFile),
}

/// Which file, and which state of it. Every change of a file, and of who may read it, gives it a new time of change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    device: (u32, u32),
    inode: u64,
    length: u64,
    modified: (i64, u32),
    changed: (i64, u32),
}

impl Identity {
    fn new(stat: &Statx) -> Self {
        Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            length: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }

    /// Whether a change that comes after `now` is sure to give another time of change: git calls what is not so racily clean.
    fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let tick = if nanoseconds == 0 { COARSE_TICK } else { TICK };
        let Ok(seconds) = u64::try_from(seconds) else { return false };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        // A time that is yet to come says nothing: the clock was set.
        now.duration_since(changed).is_ok_and(|age| age > tick)
    }
}

/// Whether an error of [`Effort::Memory`] is the answer, so that waiting would not change it.
pub(crate) fn is_definite(error: Errno) -> bool {
    matches!(error, Errno::ISDIR | Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG)
}

impl Root {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Opened for search only: without the right to search, every request would fail.
        rustix::fs::statat(&folder, ".", AtFlags::empty())?;
        let is_local = rustix::fs::fstatfs(&folder).is_ok_and(|system| LOCAL.contains(&(system.f_type as u32)));
        Ok(Self { folder, is_local, resolve: ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS })
    }

    /// The same folder, whose links may lead out of it.
    pub(crate) fn with_links_outside(&self) -> io::Result<Self> {
        let (folder, is_local) = (self.folder.try_clone()?, self.is_local);
        // What comes here has no `..` and is no path from the root on: of its own it stays inside.
        Ok(Self { folder, is_local, resolve: ResolveFlags::NO_MAGICLINKS })
    }

    /// Opens the file that `path` names, and reads it if it is small; [`Errno::ISDIR`] when it is a folder.
    pub(crate) fn look_up(&self, path: &[u8], variant: Variant, effort: Effort) -> Result<Opened, Errno> {
        // Before anything else, so that what comes later is later.
        let now = SystemTime::now();
        // Without NONBLOCK, opening a FIFO would wait for its writer.
        let file = self.open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, effort)?;
        let stat = stat(&file, effort)?;
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::NOENT),
        }
        let identity = Identity::new(&stat);
        let described = match variant {
            Variant::Coded(coding) => path.strip_suffix(coding.suffix().as_bytes()).unwrap_or(path),
            Variant::Only | Variant::Plain => path,
        };
        let can_be_checked = effort == Effort::Memory || self.identify(path).as_ref() == Ok(&identity);
        let content = match effort {
            _ if identity.length > SMALL_BYTES => Content::Large(OpenFile::new(file, can_be_checked)),
            Effort::Memory => Content::Small(file_body::read_cached(&file, identity.length)?),
            Effort::Disk => Content::Small(
                file_body::read(&file, 0..identity.length).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
            ),
        };
        Ok(Opened {
            is_settled: identity.is_settled(now),
            can_be_checked,
            state: FileState::new(described, identity.length, identity.modified, variant),
            identity,
            content,
        })
    }

    /// What `path` names now, without opening it for reading or waiting for the disk.
    pub(crate) fn identify(&self, path: &[u8]) -> Result<Identity, Errno> {
        let file = self.open(path, OFlags::PATH, Effort::Memory)?;
        stat(&file, Effort::Memory).map(|stat| Identity::new(&stat))
    }

    /// What kind of file `path` names, links followed.
    pub(crate) fn type_of(&self, path: &[u8], effort: Effort) -> Result<FileType, Errno> {
        let file = self.open(path, OFlags::PATH, effort)?;
        stat(&file, effort).map(|stat| FileType::from_raw_mode(stat.stx_mode.into()))
    }

    pub(crate) fn open(&self, path: &[u8], flags: OFlags, effort: Effort) -> Result<OwnedFd, Errno> {
        let resolve = self.resolve;
        let open = |resolve| rustix::fs::openat2(&self.folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
        match effort {
            // What is mounted below may be of another type.
            Effort::Memory if self.is_local => open(resolve | ResolveFlags::CACHED | ResolveFlags::NO_XDEV),
            Effort::Memory => Err(Errno::AGAIN),
            Effort::Disk => {
                // A rename somewhere can keep the kernel from proving that the path stays inside.
                let mut attempts = std::iter::repeat_with(|| open(resolve)).take(OPEN_ATTEMPTS);
                attempts.find(|result| !matches!(result, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN))
            }
        }
    }
}

fn stat(file: &OwnedFd, effort: Effort) -> Result<Statx, Errno> {
    let patience = match effort {
        Effort::Memory => AtFlags::STATX_DONT_SYNC,
        Effort::Disk => AtFlags::empty(),
    };
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | patience, StatxFlags::BASIC_STATS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_settled(changed: (i64, u32), now: f64) -> bool {
        Identity { changed, ..Identity::default() }.is_settled(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(now))
    }

    #[test]
    fn change_of_this_tick_may_be_followed_by_another() {
        let changed = (1000, 500_000_000);
        assert!(!is_settled(changed, 1000.5));
        assert!(!is_settled(changed, 1000.519));
        assert!(is_settled(changed, 1000.521));
    }

    #[test]
    fn whole_seconds_may_be_all_that_the_file_system_keeps() {
        assert!(!is_settled((1000, 0), 1003.9));
        assert!(is_settled((1000, 0), 1004.1));
    }

    #[test]
    fn change_that_is_yet_to_come_says_nothing() {
        assert!(!is_settled((2000, 1), 1000.0));
        assert!(!is_settled((-1, 1), 1000.0));
    }
}
