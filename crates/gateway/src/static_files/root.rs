//! Access to the served folder, with path resolution by the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::static_files::conditional::Validators;
use crate::static_files::content_types::ContentTypes;
use crate::static_files::file_body::{self, OpenFile};
use crate::static_files::file_state::{FileState, Variant};
use crate::static_files::path::is_hidden;

/// Maximum number of attempts to open a file while renames interfere.
const OPEN_ATTEMPTS: usize = 16;
/// Files up to this size are read when they are opened; larger ones are streamed.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;
/// Twice the longest tick of the kernel's clock: two changes of a file within a tick give it the
/// same times.
const TICK: Duration = Duration::from_millis(20);
/// The tick for file systems that store whole seconds; FAT stores even seconds.
const COARSE_TICK: Duration = Duration::from_secs(4);

/// Types of local file systems: the metadata of an open file is available without waiting. On
/// others, such as NFS, it may have to be requested.
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

/// A served folder. No path leads out of it, in any spelling: the kernel resolves each path and
/// symbolic link below the folder, unless links may lead anywhere. A link to a hidden name is
/// itself hidden, unless hidden names are shown.
#[derive(Clone)]
pub(crate) struct Root {
    folder: Arc<OwnedFd>,
    is_local: bool,
    resolve: ResolveFlags,
    shows_hidden: bool,
    types: Arc<ContentTypes>,
    /// Absolute path of the folder, if it contains symbolic links that may change.
    way: Option<Arc<Path>>,
}

/// Whether an operation may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Cached data only. Any error except those of [`is_definite`] means that the disk is needed.
    CachedOnly,
    /// Waits for the disk.
    Disk,
}

/// A file that can be served.
pub(crate) struct Opened {
    pub(crate) identity: FileIdentity,
    /// Whether any later change is visible in the identity.
    pub(crate) is_settled: bool,
    /// Whether [`Root::identify`] can detect changes.
    pub(crate) can_be_checked: bool,
    pub(crate) state: FileState,
    pub(crate) content: Content,
}

/// A folder that can be read.
pub(crate) struct Folder {
    pub(crate) file: OwnedFd,
    pub(crate) identity: FileIdentity,
    /// Whether any later change of the folder's entries is visible in the identity.
    pub(crate) is_settled: bool,
}

pub(crate) enum Content {
    Small(Bytes),
    Large(OpenFile),
}

/// Identity of a file and its version. Every change of a file or its permissions updates its change
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) length: u64,
    /// Modification time in seconds and nanoseconds since 1970; programs can set it.
    pub(crate) modified: (i64, u32),
    /// Change time in the same form; only the kernel sets it.
    pub(crate) changed: (i64, u32),
}

impl FileIdentity {
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

    /// Returns whether both are versions of the same file.
    pub(crate) fn is_of_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Returns whether any change after `now` will give another change time. Git calls a file
    /// without this property racily clean.
    fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let tick = if nanoseconds == 0 { COARSE_TICK } else { TICK };
        let Ok(seconds) = u64::try_from(seconds) else { return false };
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        // A time in the future is unreliable: the clock was set back.
        now.duration_since(changed).is_ok_and(|age| age > tick)
    }
}

/// Returns whether an error of [`Wait::CachedOnly`] is final, so that the disk would not change it.
pub(crate) fn is_definite(error: Errno) -> bool {
    matches!(
        error,
        Errno::ISDIR
            | Errno::NOENT
            | Errno::NOTDIR
            | Errno::ACCESS
            | Errno::LOOP
            | Errno::NAMETOOLONG
    )
}

impl Root {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let way = std::path::absolute(folder)?;
        let has_links = std::fs::canonicalize(folder).is_ok_and(|real| real != way);
        let folder = rustix::fs::open(
            folder,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // Tests the search permission, without which every request would fail.
        rustix::fs::statat(&folder, ".", AtFlags::empty())?;
        let is_local = rustix::fs::fstatfs(&folder)
            .is_ok_and(|system| LOCAL.contains(&(system.f_type as u32)));
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

    /// Returns the root without following later changes of links in its path.
    pub(crate) fn pinned(&self) -> Self {
        Self { way: None, ..self.clone() }
    }

    /// Returns whether links in the folder's path may lead to another folder later.
    pub(crate) fn path_may_change(&self) -> bool {
        self.way.is_some()
    }

    /// Returns the folder that the path leads to now, if it is another one.
    ///
    /// # Errors
    ///
    /// If there is none; or, with [`Wait::CachedOnly`], if that is unknown.
    pub(crate) fn current_folder(&self, wait: Wait) -> Result<Option<Self>, Errno> {
        let Some(way) = &self.way else { return Ok(None) };
        let resolve =
            if wait == Wait::CachedOnly { ResolveFlags::CACHED } else { ResolveFlags::empty() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = rustix::fs::openat2(rustix::fs::CWD, &**way, flags, Mode::empty(), resolve)?;
        let (before, now) = (
            FileIdentity::new(&stat(&*self.folder, wait)?),
            FileIdentity::new(&stat(&found, wait)?),
        );
        if now.is_of_same_file(&before) {
            return Ok(None);
        }
        // A folder on another file system may not be local.
        let is_local = self.is_local && now.device == before.device;
        Ok(Some(Self { folder: Arc::new(found), is_local, ..self.clone() }))
    }

    /// Returns the root with links that may lead out of the folder.
    pub(crate) fn with_links_outside(&self) -> Self {
        // Paths here are relative and contain no `..`, so without links they stay inside.
        Self { resolve: ResolveFlags::NO_MAGICLINKS, ..self.clone() }
    }

    /// Returns the root with links that may lead to names that start with a dot.
    pub(crate) fn with_hidden(&self) -> Self {
        Self { shows_hidden: true, ..self.clone() }
    }

    /// Returns the root with content types that take precedence over the known ones.
    pub(crate) fn with_types(&self, types: ContentTypes) -> Self {
        Self { types: Arc::new(types), ..self.clone() }
    }

    /// Opens the file that `path` names, and reads it if it is small. Returns [`Errno::ISDIR`] for
    /// a folder.
    pub(crate) fn look_up(
        &self,
        path: &[u8],
        variant: Variant,
        wait: Wait,
    ) -> Result<Opened, Errno> {
        // Taken first, so that it is earlier than any concurrent change.
        let now = SystemTime::now();
        // Without NONBLOCK, opening a FIFO would block until there is a writer.
        let file = self.open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, wait)?;
        let stat = stat(&file, wait)?;
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            _ => return Err(Errno::NOENT),
        }
        let identity = FileIdentity::new(&stat);
        let described = match variant {
            Variant::Coded(coding) => path.strip_suffix(coding.suffix().as_bytes()).unwrap_or(path),
            Variant::Only | Variant::Plain => path,
        };
        let can_be_checked =
            wait == Wait::CachedOnly || self.identify(path).as_ref() == Ok(&identity);
        let content = match wait {
            _ if identity.length > SMALL_BYTES => {
                Content::Large(OpenFile::new(file, can_be_checked))
            }
            Wait::CachedOnly => Content::Small(file_body::read_cached(&file, identity.length)?),
            Wait::Disk => Content::Small(
                file_body::read(&file, 0..identity.length)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
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

    /// Returns the current identity of `path`, without opening it for reading or waiting for the
    /// disk.
    pub(crate) fn identify(&self, path: &[u8]) -> Result<FileIdentity, Errno> {
        let file = self.open(path, OFlags::PATH, Wait::CachedOnly)?;
        stat(&file, Wait::CachedOnly).map(|stat| FileIdentity::new(&stat))
    }

    /// Opens a folder for listing.
    pub(crate) fn open_folder(&self, path: &[u8]) -> Result<Folder, Errno> {
        let now = SystemTime::now();
        let file = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, Wait::Disk)?;
        let identity = FileIdentity::new(&stat(&file, Wait::Disk)?);
        Ok(Folder { is_settled: identity.is_settled(now), identity, file })
    }

    /// Returns the type of the file that `path` names, following links.
    pub(crate) fn type_of(&self, path: &[u8], wait: Wait) -> Result<FileType, Errno> {
        let file = self.open(path, OFlags::PATH, wait)?;
        stat(&file, wait).map(|stat| FileType::from_raw_mode(stat.stx_mode.into()))
    }

    /// Opens `path`. Returns [`Errno::NOENT`] if a link leads to a hidden name, as if it did not
    /// exist: responses must not reveal which hidden names exist.
    pub(crate) fn open(&self, path: &[u8], flags: OFlags, wait: Wait) -> Result<OwnedFd, Errno> {
        if self.shows_hidden {
            return self.resolve(path, flags, wait, self.resolve);
        }
        // Without links the path itself contains all names. Nearly every path is such.
        match self.resolve(path, flags, wait, self.resolve | ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => {}
            opened => return opened,
        }
        let file = self.resolve(path, flags, wait, self.resolve)?;
        if self.is_hidden(&file)? { Err(Errno::NOENT) } else { Ok(file) }
    }

    /// Returns whether an open file's name below the folder is hidden. Files elsewhere are not
    /// hidden.
    ///
    /// # Errors
    ///
    /// [`Errno::AGAIN`] if that is unknown, as while the folder is renamed.
    fn is_hidden(&self, file: &OwnedFd) -> Result<bool, Errno> {
        let before = name_of(&self.folder)?;
        let name = name_of(file)?;
        match name.strip_prefix(&before) {
            Ok(below) => Ok(is_hidden(below.as_os_str().as_bytes())),
            // The kernel has found the file inside of the folder.
            Err(_) if self.resolve.contains(ResolveFlags::BENEATH) => Err(Errno::AGAIN),
            Err(_) if name_of(&self.folder)? != before => Err(Errno::AGAIN),
            Err(_) => Ok(false),
        }
    }

    fn resolve(
        &self,
        path: &[u8],
        flags: OFlags,
        wait: Wait,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, Errno> {
        let open = |resolve| {
            rustix::fs::openat2(
                &*self.folder,
                path,
                flags | OFlags::CLOEXEC,
                Mode::empty(),
                resolve,
            )
        };
        match wait {
            // A file system mounted below may be of another type.
            Wait::CachedOnly if self.is_local => {
                open(resolve | ResolveFlags::CACHED | ResolveFlags::NO_XDEV)
            }
            Wait::CachedOnly => Err(Errno::AGAIN),
            Wait::Disk => {
                // A concurrent rename can keep the kernel from proving that the path stays inside.
                let mut attempts = std::iter::repeat_with(|| open(resolve)).take(OPEN_ATTEMPTS);
                attempts
                    .find(|result| !matches!(result, Err(Errno::AGAIN)))
                    .unwrap_or(Err(Errno::AGAIN))
            }
        }
    }
}

/// Returns the full path of an open file, from the kernel's memory. Without `/proc` it fails, and
/// no link can be followed.
fn name_of(file: &OwnedFd) -> Result<PathBuf, Errno> {
    let entry = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::read_link(entry).map_err(|_| Errno::LOOP)
}

fn stat(file: impl AsFd, wait: Wait) -> Result<Statx, Errno> {
    let patience = match wait {
        Wait::CachedOnly => AtFlags::STATX_DONT_SYNC,
        Wait::Disk => AtFlags::empty(),
    };
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | patience, StatxFlags::BASIC_STATS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_settled(changed: (i64, u32), now: f64) -> bool {
        FileIdentity { changed, ..FileIdentity::default() }
            .is_settled(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(now))
    }

    #[test]
    fn link_is_as_hidden_as_what_it_leads_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = |name: &str| folder.path().join(name);
        for name in [".git", "public", ".well-known", "public/.cache"] {
            std::fs::create_dir(below(name)).expect("a folder");
        }
        for name in [
            ".env",
            ".git/config",
            "public/page",
            ".well-known/x",
            "public/.cache/x",
            "public/.htpasswd",
        ] {
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
        let open = |root: &Root, name: &str| {
            root.open(name.as_bytes(), OFlags::PATH, Wait::Disk).map(drop)
        };
        let hidden = [
            "env",
            "git",
            "git/config",
            "twice",
            "public/up",
            "cache/x",
            "password",
            "here/env",
            "here/git/config",
        ];
        for name in hidden {
            assert_eq!(open(&root, name), Err(Errno::NOENT), "{name}");
            assert_eq!(open(&root.with_links_outside(), name), Err(Errno::NOENT), "{name}");
            assert_eq!(open(&root.with_hidden(), name), Ok(()), "{name}");
            let from_memory =
                root.look_up(name.as_bytes(), Variant::Only, Wait::CachedOnly).map(drop);
            assert!(
                matches!(from_memory, Err(Errno::NOENT | Errno::AGAIN)),
                "{name}: {from_memory:?}"
            );
        }
        assert_eq!(
            open(&root.with_links_outside(), "out"),
            Err(Errno::NOENT),
            "the link leads back inside"
        );
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
