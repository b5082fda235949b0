//! The folder that is served, as the kernel sees it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::conditional::Validators;
use crate::content_types::ContentTypes;
use crate::file_body::{self, OpenFile};
use crate::file_state::{FileState, Variant};
use crate::wanted::is_hidden;

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
/// links, unless they may lead anywhere. A link to what has a hidden name is as hidden as that name, unless such names are shown.
#[derive(Clone)]
pub(crate) struct Root {
    folder: Arc<OwnedFd>,
    is_local: bool,
    resolve: ResolveFlags,
    shows_hidden: bool,
    types: Arc<ContentTypes>,
    /// Where it was found, if a link on the way may lead elsewhere later.
    way: Option<Arc<Path>>,
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

/// A folder that can be read.
pub(crate) struct Folder {
    pub(crate) file: OwnedFd,
    pub(crate) identity: Identity,
    /// Whether any later change of what is in it shows in the identity.
    pub(crate) is_settled: bool,
}

pub(crate) enum Content {
    Small(Bytes),
    Large(OpenFile),
}

/// Which file, and which state of it. Every change of a file, and of who may read it, gives it a new time of change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) length: u64,
    /// In seconds and nanoseconds since 1970; whoever may write the file can set it.
    pub(crate) modified: (i64, u32),
    /// The same, and the kernel's own.
    pub(crate) changed: (i64, u32),
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

    #[cfg(test)]
    pub(crate) fn of_inode(inode: u64) -> Self {
        Self { inode, ..Self::default() }
    }

    /// Whether both are states of one file.
    pub(crate) fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
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
        let way = std::path::absolute(folder)?;
        let has_links = std::fs::canonicalize(folder).is_ok_and(|real| real != way);
        let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Opened for search only: without the right to search, every request would fail.
        rustix::fs::statat(&folder, ".", AtFlags::empty())?;
        let is_local = rustix::fs::fstatfs(&folder).is_ok_and(|system| LOCAL.contains(&(system.f_type as u32)));
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(Self {
            folder: Arc::new(folder),
            is_local,
            resolve,
            shows_hidden: false,
            types: Arc::default(),
            way: has_links.then(|| way.into()),
        })
    }

    /// The same folder, whatever becomes of links on the way to it.
    pub(crate) fn staying(&self) -> Self {
        Self { way: None, ..self.clone() }
    }

    /// Whether links on the way to the folder may lead to another one later.
    pub(crate) fn may_move(&self) -> bool {
        self.way.is_some()
    }

    /// The folder that the links on the way lead to now, if that is another one.
    ///
    /// # Errors
    ///
    /// When there is none; or, without waiting for the disk, when that is not known.
    pub(crate) fn moved(&self, effort: Effort) -> Result<Option<Self>, Errno> {
        let Some(way) = &self.way else { return Ok(None) };
        let resolve = if effort == Effort::Memory { ResolveFlags::CACHED } else { ResolveFlags::empty() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = rustix::fs::openat2(rustix::fs::CWD, &**way, flags, Mode::empty(), resolve)?;
        let (before, now) = (Identity::new(&stat(&*self.folder, effort)?), Identity::new(&stat(&found, effort)?));
        if now.is_of_same_file(&before) {
            return Ok(None);
        }
        // A folder on another file system may be one that has to be waited for.
        let is_local = self.is_local && now.device == before.device;
        Ok(Some(Self { folder: Arc::new(found), is_local, ..self.clone() }))
    }

    /// The same folder, whose links may lead out of it.
    pub(crate) fn with_links_outside(&self) -> Self {
        // What comes here has no `..` and is no path from the root on: of its own it stays inside.
        Self { resolve: ResolveFlags::NO_MAGICLINKS, ..self.clone() }
    }

    /// The same folder, whose links may lead to names that begin with a dot.
    pub(crate) fn with_hidden(&self) -> Self {
        Self { shows_hidden: true, ..self.clone() }
    }

    /// The same folder, with these content types before those that are known.
    pub(crate) fn with_types(&self, types: ContentTypes) -> Self {
        Self { types: Arc::new(types), ..self.clone() }
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
        let whole = if let Content::Small(content) = &content { Some(content) } else { None };
        let validators = Validators::of(&identity, whole, variant.coding(), now);
        Ok(Opened {
            is_settled: identity.is_settled(now),
            can_be_checked,
            state: FileState::new(self.types.of(described), identity.length, validators, variant),
            identity,
            content,
        })
    }

    /// What `path` names now, without opening it for reading or waiting for the disk.
    pub(crate) fn identify(&self, path: &[u8]) -> Result<Identity, Errno> {
        let file = self.open(path, OFlags::PATH, Effort::Memory)?;
        stat(&file, Effort::Memory).map(|stat| Identity::new(&stat))
    }

    /// Opens a folder, to see what is in it.
    pub(crate) fn open_folder(&self, path: &[u8]) -> Result<Folder, Errno> {
        let now = SystemTime::now();
        let file = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Effort::Disk)?;
        let identity = Identity::new(&stat(&file, Effort::Disk)?);
        Ok(Folder { is_settled: identity.is_settled(now), identity, file })
    }

    /// What kind of file `path` names, links followed.
    pub(crate) fn type_of(&self, path: &[u8], effort: Effort) -> Result<FileType, Errno> {
        let file = self.open(path, OFlags::PATH, effort)?;
        stat(&file, effort).map(|stat| FileType::from_raw_mode(stat.stx_mode.into()))
    }

    /// Opens what `path` names; [`Errno::NOENT`] where a link on its way leads to something hidden, as if there were nothing: what stands for
    /// what is missing must not tell which names there are.
    pub(crate) fn open(&self, path: &[u8], flags: OFlags, effort: Effort) -> Result<OwnedFd, Errno> {
        if self.shows_hidden {
            return self.resolve(path, flags, effort, self.resolve);
        }
        // Without links, the path says all of the names on the way. Nearly every path is such.
        match self.resolve(path, flags, effort, self.resolve | ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => {}
            opened => return opened,
        }
        let file = self.resolve(path, flags, effort, self.resolve)?;
        if self.is_hidden(&file)? { Err(Errno::NOENT) } else { Ok(file) }
    }

    /// Whether the name that an open file has below the folder is hidden. What lies elsewhere is not.
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] where that cannot be told, as while the folder is renamed.
    fn is_hidden(&self, file: &OwnedFd) -> Result<bool, Errno> {
        let before = name_of(&self.folder)?;
        let name = name_of(file)?;
        match name.strip_prefix(&before) {
            Ok(below) => Ok(is_hidden(below.as_os_str().as_bytes())),
            // Inside of the folder is where the kernel has found it.
            Err(_) if self.resolve.contains(ResolveFlags::BENEATH) => Err(Errno::AGAIN),
            Err(_) if name_of(&self.folder)? != before => Err(Errno::AGAIN),
            Err(_) => Ok(false),
        }
    }

    fn resolve(&self, path: &[u8], flags: OFlags, effort: Effort, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
        let open = |resolve| rustix::fs::openat2(&*self.folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
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

/// The whole name of an open file, as the kernel has it in memory. Without `/proc` there is none, and no link can be followed.
fn name_of(file: &OwnedFd) -> Result<PathBuf, Errno> {
    let entry = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(entry).map_err(|_| Errno::LOOP)
}

fn stat(file: impl AsFd, effort: Effort) -> Result<Statx, Errno> {
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
    fn link_is_as_hidden_as_what_it_leads_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = |name: &str| folder.path().join(name);
        for name in [".git", "public", ".well-known", "public/.cache"] {
            std::fs::create_dir(below(name)).expect("a folder");
        }
        for name in [".env", ".git/config", "public/page", ".well-known/x", "public/.cache/x", "public/.htpasswd"] {
            std::fs::write(below(name), "x").expect("a file");
        }
        let links = [
            ("env", ".env"),
            ("git", ".git"),
            ("twice", "env"),
            ("public/up", "../.env"),
            ("cache", "public/.cache"),
            ("password", "public/.htpasswd"),
            ("page", "public/page"),
            ("known", ".well-known"),
            ("here", "."),
        ];
        for (name, target) in links {
            std::os::unix::fs::symlink(target, below(name)).expect("a link");
        }
        let (out, inside) = (below("out"), below(".env"));
        std::os::unix::fs::symlink(inside, out).expect("a link");
        let root = Root::new(folder.path()).expect("a folder");
        let open = |root: &Root, name: &str| root.open(name.as_bytes(), OFlags::PATH, Effort::Disk).map(drop);
        let hidden = ["env", "git", "git/config", "twice", "public/up", "cache/x", "password", "here/env", "here/git/config"];
        for name in hidden {
            assert_eq!(open(&root, name), Err(Errno::NOENT), "{name}");
            assert_eq!(open(&root.with_links_outside(), name), Err(Errno::NOENT), "{name}");
            assert_eq!(open(&root.with_hidden(), name), Ok(()), "{name}");
            let from_memory = root.look_up(name.as_bytes(), Variant::Only, Effort::Memory).map(drop);
            assert!(matches!(from_memory, Err(Errno::NOENT | Errno::AGAIN)), "{name}: {from_memory:?}");
        }
        assert_eq!(open(&root.with_links_outside(), "out"), Err(Errno::NOENT), "it comes back from outside");
        assert_eq!(open(&root.with_links_outside().with_hidden(), "out"), Ok(()));
        for name in ["page", "known/x", "here/public/page", "public/page"] {
            assert_eq!(open(&root, name), Ok(()), "{name}");
        }
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
