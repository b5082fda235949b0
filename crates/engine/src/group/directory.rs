//! The directory in which processes that share a port find each other.
//!
//! It contains the secret from which all of them derive the keys of their QUIC endpoints, a state
//! byte for each member, and a Unix datagram socket for each member. Only its owner can enter it,
//! so all data on those sockets comes from the same user.
//!
//! Every process holds a shared lock on the directory itself. A directory without a lock is left
//! over from killed processes. The next process that creates a directory beside it removes it.
//! (systemd-tmpfiles also leaves locked directories alone.) A separate lock covers joining and
//! leaving.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps,
    UTIME_NOW,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::transport::Secret;

/// One byte of a connection ID holds the worker's number.
pub(crate) const MAX_MEMBERS: usize = 256;
const SECRET: &str = "secret";
const NEW_SECRET: &str = "secret.new";
const MEMBERS: &str = "members";
const PORT: &str = "port";
const LOCK: &str = "lock";
/// How long to wait for another process that joins or leaves: it binds sockets meanwhile.
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The same limit for leaving. The next process that joins cleans up what is left over.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(500);
const LOCK_INTERVAL: Duration = Duration::from_millis(1);
/// How often to retry if the directory vanishes while it is opened, because its last process
/// leaves.
const OPEN_ATTEMPTS: usize = 100;

/// Why a directory cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The directory belongs to another user, who could read the secret and take over connections.
    #[error("the directory {} belongs to another user (uid {owner}): have that user or root remove it", path.display())]
    OtherOwner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The directory is accessible to other users.
    #[error("the directory {} is open to other users (mode {mode:o}): remove it", path.display())]
    AccessibleToOthers {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The path is a symbolic link or a file.
    #[error("{} is not a directory: remove it", path.display())]
    NotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// Another process has been joining or leaving for longer than five seconds.
    #[error("the directory {} is locked by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The maximum number of workers is reached.
    #[error("{MAX_MEMBERS} workers share this port already")]
    Full,
    /// A system call failed.
    #[error("cannot use the directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

/// The state of a number, as its byte in the file of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No member has the number.
    Free = 0,
    /// Its member accepts connections.
    Open = 1,
    /// Its member finishes the connections that it has.
    Leaving = 2,
}

impl State {
    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Open,
            2 => Self::Leaving,
            _ => Self::Free,
        }
    }
}

/// A directory shared by the processes that serve one port; see
/// [`Group::shared`](crate::Group::shared).
///
/// The last process that closes it removes it.
#[derive(Debug)]
pub struct Directory {
    parent: OwnedFd,
    name: String,
    path: PathBuf,
    fd: OwnedFd,
    members: OwnedFd,
    secret: Secret,
}

impl Directory {
    /// Opens the directory `name` in `parent`. Creates both, for this user alone, if they do not
    /// exist. The directory that contains `parent` may be writable for all users if it is sticky,
    /// such as `/tmp`.
    ///
    /// # Errors
    ///
    /// [`DirectoryError`], if one of the two exists and is not private to this user, or if a system
    /// call fails.
    pub fn open(parent: &Path, name: &str) -> Result<Self, DirectoryError> {
        let path = parent.join(name);
        let fail = |source: Errno| DirectoryError::Io { path: path.clone(), source: source.into() };
        let mut last = Errno::NOENT;
        for _ in 0..OPEN_ATTEMPTS {
            make(CWD, parent).map_err(|source| DirectoryError::Io {
                path: parent.to_owned(),
                source: source.into(),
            })?;
            let parent_fd = open_private(CWD, parent, parent)?;
            let is_new = make(parent_fd.as_fd(), Path::new(name)).map_err(fail)?;
            let fd = match open_private(parent_fd.as_fd(), Path::new(name), &path) {
                Ok(fd) => fd,
                Err(DirectoryError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            // The exclusive lock is held only while the directory is being removed.
            rustix::io::retry_on_intr(|| fs::flock(&fd, FlockOperation::LockShared))
                .map_err(fail)?;
            if !is_still(&parent_fd, name, &fd) {
                continue;
            }
            if is_new {
                sweep(&parent_fd, name);
            }
            let opened = locked(&fd, &path, JOIN_TIMEOUT).and_then(|_lock| {
                let secret = secret_of(&fd).map_err(fail)?;
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let members =
                    fs::openat(&fd, MEMBERS, flags, Mode::RUSR | Mode::WUSR).map_err(fail)?;
                Ok((secret, members))
            });
            let (secret, members) = match opened {
                Ok(opened) => opened,
                Err(DirectoryError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound =>
                {
                    last = Errno::NOENT;
                    continue;
                }
                Err(error) => return Err(error),
            };
            return Ok(Self {
                parent: parent_fd,
                name: name.to_owned(),
                path,
                fd,
                members,
                secret,
            });
        }
        Err(fail(last))
    }

    /// Begins to join. Other processes can neither join nor leave until the result is dropped.
    ///
    /// # Errors
    ///
    /// If another process has held the lock for longer than five seconds, or if a system call
    /// fails.
    pub fn join(self: &Arc<Self>) -> Result<JoinGuard, DirectoryError> {
        let lock = locked(&self.fd, &self.path, JOIN_TIMEOUT)?;
        let states = self.states();
        let mut live = Vec::new();
        for number in (0..=u8::MAX).filter(|number| states[usize::from(*number)] != State::Free) {
            match self.connect(number) {
                // Its process was killed.
                Err(error) if is_absent(&error) => self.remove(number),
                // This process may be unable to connect, for example without free descriptors.
                _ => live.push(number),
            }
        }
        Ok(JoinGuard { directory: self.clone(), live, _lock: lock })
    }

    /// Updates the timestamps of everything in the directory. Call it from time to time: jobs that
    /// clean directories such as `/tmp` remove old files, and most of them ignore locks. Without
    /// the directory no other process can join.
    pub fn refresh(&self) {
        const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        const TIMES: Timestamps = Timestamps { last_access: NOW, last_modification: NOW };
        if let Ok(entries) = Dir::read_from(&self.fd) {
            for entry in entries.flatten().filter(|entry| entry.file_name().to_bytes() != b"..") {
                let _ =
                    fs::utimensat(&self.fd, entry.file_name(), &TIMES, AtFlags::SYMLINK_NOFOLLOW);
            }
        }
        let _ = fs::futimens(&self.parent, &TIMES);
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Returns the state of each number. A member whose process was killed is still listed.
    pub(crate) fn states(&self) -> [State; MAX_MEMBERS] {
        let mut bytes = [0; MAX_MEMBERS];
        // Bytes that the file does not have, or that cannot be read, are zero.
        let _ = rustix::io::pread(&self.members, &mut bytes, 0);
        bytes.map(State::from_byte)
    }

    /// Returns the state of one number. `None` if neither it nor a higher one was ever claimed.
    pub(crate) fn state(&self, number: u8) -> Option<State> {
        let mut byte = [0];
        (rustix::io::pread(&self.members, &mut byte, number.into()) == Ok(1))
            .then(|| State::from_byte(byte[0]))
    }

    pub(crate) fn set_state(&self, number: u8, state: State) {
        // This fails if the disk is full. Others then see the number as free, and answer for its
        // connections only after trying its socket.
        let _ = rustix::io::pwrite(&self.members, &[state as u8], number.into());
    }

    /// Returns a socket that sends to the member `number`, if its process is alive.
    pub(crate) fn connect(&self, number: u8) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(self.socket_path(number))?;
        Ok(socket)
    }

    fn socket_path(&self, number: u8) -> PathBuf {
        let name = format!("{number}.sock");
        // A socket's path has at most 107 bytes. And this path cannot be redirected by renaming a
        // directory above.
        let short = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        if short.exists() { short.join(name) } else { self.path.join(name) }
    }

    fn remove(&self, number: u8) {
        let _ = fs::unlinkat(&self.fd, format!("{number}.sock"), AtFlags::empty());
        self.set_state(number, State::Free);
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_still(&self.parent, &self.name, &self.fd)
        {
            remove_all(&self.parent, &self.name, &self.fd);
        }
    }
}

/// A process that is joining; see [`Directory::join`].
#[derive(Debug)]
pub struct JoinGuard {
    directory: Arc<Directory>,
    live: Vec<u8>,
    _lock: OwnedFd,
}

impl JoinGuard {
    /// Whether another member serves the port.
    pub fn has_members(&self) -> bool {
        !self.live.is_empty()
    }

    /// Returns the port that the first member chose, if one was recorded.
    pub fn port(&self) -> Option<u16> {
        let file = fs::openat(
            &self.directory.fd,
            PORT,
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        let mut bytes = [0; 2];
        (rustix::io::read(file, &mut bytes) == Ok(2)).then_some(u16::from_be_bytes(bytes))
    }

    /// Records the port that the system chose for the first member.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn set_port(&self, port: u16) -> Result<(), DirectoryError> {
        let fail = |source: Errno| DirectoryError::Io {
            path: self.directory.path.clone(),
            source: source.into(),
        };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            fs::openat(&self.directory.fd, PORT, flags, Mode::RUSR | Mode::WUSR).map_err(fail)?;
        rustix::io::write(file, &port.to_be_bytes()).map_err(fail)?;
        Ok(())
    }

    /// Claims the lowest free number. It is in use until the claim is dropped or the process ends.
    pub(super) fn claim(&self) -> Result<(Claim, UnixDatagram), DirectoryError> {
        let Directory { path, .. } = &*self.directory;
        let states = self.directory.states();
        let number = (0..=u8::MAX)
            .find(|number| states[usize::from(*number)] == State::Free)
            .ok_or(DirectoryError::Full)?;
        // Left over if a process was killed before it wrote its state.
        self.directory.remove(number);
        let fail = |source| DirectoryError::Io { path: path.clone(), source };
        let socket = UnixDatagram::bind(self.directory.socket_path(number)).map_err(fail)?;
        socket.set_nonblocking(true).map_err(fail)?;
        rustix::io::pwrite(&self.directory.members, &[State::Open as u8], number.into())
            .map_err(|error| fail(error.into()))?;
        Ok((Claim { directory: self.directory.clone(), number }, socket))
    }
}

/// A number of one worker, among those of the processes that share a directory; see
/// [`Group::claim`](crate::Group::claim).
///
/// Drop it after the worker.
#[derive(Debug)]
pub struct Claim {
    directory: Arc<Directory>,
    number: u8,
}

impl Claim {
    /// Returns the worker's number in its group.
    pub fn number(&self) -> usize {
        self.number.into()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Without the lock, the socket could belong to another process which has found this one's
        // closed. That process cleans up.
        if let Ok(_lock) = locked(&self.directory.fd, &self.directory.path, LEAVE_TIMEOUT) {
            self.directory.remove(self.number);
        }
    }
}

/// Whether connecting to a member failed because its process has ended.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
}

/// Creates a directory for this user alone. Returns whether it did not exist.
fn make(parent: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<bool> {
    match fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

fn open_private(
    parent: BorrowedFd<'_>,
    name: &Path,
    path: &Path,
) -> Result<OwnedFd, DirectoryError> {
    let path = || path.to_owned();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match fs::openat(parent, name, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Err(DirectoryError::NotDirectory { path: path() });
        }
        // Reports a directory of another user as such even if it cannot be opened.
        Err(error @ Errno::ACCESS) => match fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_uid != geteuid().as_raw() => {
                return Err(DirectoryError::OtherOwner { path: path(), owner: stat.st_uid });
            }
            _ => return Err(DirectoryError::Io { path: path(), source: error.into() }),
        },
        opened => {
            opened.map_err(|error| DirectoryError::Io { path: path(), source: error.into() })?
        }
    };
    // Checks the opened directory, not the path, which could change in between.
    let stat = fs::fstat(&fd)
        .map_err(|error| DirectoryError::Io { path: path(), source: error.into() })?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(DirectoryError::OtherOwner { path: path(), owner: stat.st_uid });
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o077 != 0 {
        return Err(DirectoryError::AccessibleToOthers { path: path(), mode });
    }
    Ok(fd)
}

/// Whether the opened directory still has that name.
fn is_still(parent: &OwnedFd, name: &str, fd: &OwnedFd) -> bool {
    let identity = |stat: fs::Stat| (stat.st_dev, stat.st_ino);
    let named = fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map(identity);
    named.is_ok_and(|named| fs::fstat(fd).map(identity) == Ok(named))
}

/// Waits for the lock that joining and leaving take. Closing the descriptor releases it.
fn locked(fd: &OwnedFd, path: &Path, timeout: Duration) -> Result<OwnedFd, DirectoryError> {
    let fail = |source: Errno| DirectoryError::Io { path: path.to_owned(), source: source.into() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = fs::openat(fd, LOCK, flags, Mode::RUSR | Mode::WUSR).map_err(fail)?;
    let until = Instant::now() + timeout;
    loop {
        match fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => {
                std::thread::sleep(LOCK_INTERVAL);
            }
            Err(Errno::AGAIN) => return Err(DirectoryError::Locked { path: path.to_owned() }),
            Err(error) => return Err(fail(error)),
        }
    }
}

/// Reads the secret, which the first process writes. Call it under the lock.
fn secret_of(fd: &OwnedFd) -> rustix::io::Result<Secret> {
    if let Ok(file) =
        fs::openat(fd, SECRET, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
    {
        let mut bytes = [0; Secret::BYTES];
        if rustix::io::read(file, &mut bytes)? == Secret::BYTES {
            return Ok(Secret::new(bytes));
        }
    }
    let secret = Secret::random();
    // Left over if a process was killed while it wrote.
    let _ = fs::unlinkat(fd, NEW_SECRET, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(fd, NEW_SECRET, flags, Mode::RUSR | Mode::WUSR)?;
    if rustix::io::write(file, secret.as_bytes())? != Secret::BYTES {
        return Err(Errno::NOSPC);
    }
    fs::renameat(fd, NEW_SECRET, fd, SECRET)?;
    Ok(secret)
}

/// Removes the directories beside `name` that no process uses.
fn sweep(parent: &OwnedFd, name: &str) {
    let Ok(entries) = Dir::read_from(parent) else { return };
    for entry in entries.flatten() {
        let Ok(other) = entry.file_name().to_str() else { continue };
        if other == name
            || other == "."
            || other == ".."
            || !matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
        {
            continue;
        }
        let Ok(fd) = open_private(parent.as_fd(), Path::new(other), Path::new(other)) else {
            continue;
        };
        if fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_still(parent, other, &fd)
        {
            remove_all(parent, other, &fd);
        }
    }
}

fn remove_all(parent: &OwnedFd, name: &str, fd: &OwnedFd) {
    if let Ok(entries) = Dir::read_from(fd) {
        for entry in entries.flatten() {
            // Fails for `.` and `..`, as intended.
            let _ = fs::unlinkat(fd, entry.file_name(), AtFlags::empty());
        }
    }
    let _ = fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::group::Group;

    /// A directory that is removed when this is dropped.
    pub(super) struct Folder(PathBuf);

    impl Folder {
        pub(super) fn new() -> Self {
            let path = std::env::temp_dir()
                .join(format!("pronghorn-directory-{:016x}", rand::random::<u64>()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn parent(&self) -> PathBuf {
            self.0.join("parent")
        }

        fn open(&self) -> Arc<Directory> {
            Arc::new(Directory::open(&self.parent(), "port").unwrap())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn directory_is_its_owners_alone_and_ends_with_its_last_user() {
        let folder = Folder::new();
        let (one, other) = (folder.open(), folder.open());
        assert_eq!(one.secret().as_bytes(), other.secret().as_bytes());
        for path in [folder.parent(), folder.parent().join("port")] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o700);
        }
        assert_eq!(
            std::fs::metadata(folder.parent().join("port/secret")).unwrap().permissions().mode()
                & 0o777,
            0o600
        );
        drop(one);
        assert!(folder.parent().join("port").exists());
        drop(other);
        assert!(!folder.parent().join("port").exists());
    }

    #[test]
    fn directory_of_a_killed_process_is_removed_by_the_next_one() {
        let folder = Folder::new();
        drop(folder.open());
        let left = folder.parent().join("left");
        std::fs::create_dir(&left).unwrap();
        std::fs::set_permissions(&left, PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(left.join("secret"), [0; 32]).unwrap();
        let _used = Arc::new(Directory::open(&folder.parent(), "used").unwrap());
        assert!(!left.exists());
        let _port = folder.open();
        assert!(folder.parent().join("used").exists());
    }

    #[test]
    fn directory_open_to_others_is_refused() {
        let folder = Folder::new();
        std::fs::create_dir(folder.parent()).unwrap();
        std::fs::set_permissions(folder.parent(), PermissionsExt::from_mode(0o755)).unwrap();
        let error = Directory::open(&folder.parent(), "port").unwrap_err();
        assert!(matches!(error, DirectoryError::AccessibleToOthers { mode: 0o755, .. }), "{error}");
    }

    #[test]
    fn symbolic_link_and_file_are_refused() {
        let folder = Folder::new();
        let elsewhere = folder.0.join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o700)).unwrap();
        symlink(&elsewhere, folder.parent()).unwrap();
        let error = Directory::open(&folder.parent(), "port").unwrap_err();
        assert!(matches!(error, DirectoryError::NotDirectory { .. }), "{error}");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
        std::fs::remove_file(folder.parent()).unwrap();
        std::fs::write(folder.parent(), "").unwrap();
        let error = Directory::open(&folder.parent(), "port").unwrap_err();
        assert!(matches!(error, DirectoryError::NotDirectory { .. }), "{error}");
    }

    #[test]
    fn directory_of_another_user_is_refused() {
        // Only root can change a directory's owner.
        if !geteuid().is_root() {
            return;
        }
        let folder = Folder::new();
        std::fs::create_dir(folder.parent()).unwrap();
        std::fs::set_permissions(folder.parent(), PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(folder.parent(), Some(65_534), None).unwrap();
        let error = Directory::open(&folder.parent(), "port").unwrap_err();
        assert!(matches!(error, DirectoryError::OtherOwner { owner: 65_534, .. }), "{error}");
    }

    #[test]
    fn number_is_free_again_when_its_claim_ends_or_its_process_was_killed() {
        let folder = Folder::new();
        let directory = folder.open();
        let group = Group::shared(&directory);
        let claim = |group: &Group| group.claim(&directory.join().unwrap()).unwrap();
        let (zero, one) = (claim(&group), claim(&group));
        assert_eq!((zero.number(), one.number()), (0, 1));
        drop(zero);
        let again = claim(&group);
        assert_eq!(again.number(), 0);
        // The state after SIGKILL: the socket is closed, its file and its state byte still exist.
        let killed = Group::shared(&directory);
        let two = claim(&killed);
        assert_eq!(two.number(), 2);
        std::mem::forget(two);
        assert!(directory.connect(2).is_ok());
        drop(killed);
        assert!(directory.connect(2).is_err());
        assert_eq!(directory.states()[2], State::Open);
        let joining = directory.join().unwrap();
        assert_eq!(joining.live, [0, 1]);
        let again = group.claim(&joining).unwrap();
        assert_eq!(again.number(), 2);
        // Dropping a claim takes the lock.
        drop(joining);
    }

    #[test]
    fn more_members_than_numbers_are_refused() {
        let folder = Folder::new();
        let directory = folder.open();
        let group = Group::shared(&directory);
        let joining = directory.join().unwrap();
        let claims: Vec<_> = (0..MAX_MEMBERS).map(|_| group.claim(&joining).unwrap()).collect();
        assert_eq!(claims.last().unwrap().number(), 255);
        assert!(matches!(group.claim(&joining), Err(DirectoryError::Full)));
        drop(joining);
    }

    #[test]
    fn port_is_recorded() {
        let folder = Folder::new();
        let directory = folder.open();
        let joining = directory.join().unwrap();
        assert_eq!(joining.port(), None);
        joining.set_port(54_321).unwrap();
        assert_eq!(joining.port(), Some(54_321));
    }

    #[test]
    fn truncated_secret_is_replaced() {
        let folder = Folder::new();
        let directory = folder.open();
        let before = *directory.secret().as_bytes();
        std::fs::write(folder.parent().join("port/secret"), [1; 5]).unwrap();
        std::fs::write(folder.parent().join("port/secret.new"), [1; 7]).unwrap();
        let after = folder.open();
        assert_ne!(*after.secret().as_bytes(), before);
        assert_eq!(after.secret().as_bytes(), folder.open().secret().as_bytes());
    }
}
