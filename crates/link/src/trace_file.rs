//! Files of rows that grow while the link runs and appear completely or not at all, even if the
//! link is killed.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::Error;

/// A file that has no name until it is finished.
#[derive(Debug)]
pub(crate) struct TraceFile {
    what: &'static str,
    path: PathBuf,
    kind: Kind,
    rows: BufWriter<File>,
}

#[derive(Debug)]
enum Kind {
    /// Unnamed; the kernel frees it with its last descriptor.
    Nameless,
    /// Temporarily named, on file systems without unnamed files.
    Hidden(PathBuf),
    /// A device or a pipe, which must not be replaced by a file.
    Special,
}

impl TraceFile {
    /// Creates the file. `what` is used in messages: "the packets".
    pub(crate) fn create(what: &'static str, path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Trace { what, path: path.to_owned(), source };
        let (kind, path, file) = create(path).map_err(failed)?;
        Ok(Self { what, path, kind, rows: BufWriter::new(file) })
    }

    /// Returns the writer for rows, which become visible once the file is finished.
    pub(crate) fn rows(&mut self) -> &mut impl io::Write {
        &mut self.rows
    }

    /// Gives the file its name, replacing an older file.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.publish().map_err(|source| self.error(source))
    }

    /// Returns the error for rows that could not be written.
    pub(crate) fn error(&self, source: io::Error) -> Error {
        Error::Trace { what: self.what, path: self.path.clone(), source }
    }

    fn publish(&mut self) -> io::Result<()> {
        io::Write::flush(&mut self.rows)?;
        match &self.kind {
            Kind::Special => Ok(()),
            Kind::Hidden(hidden) => std::fs::rename(hidden, &self.path),
            Kind::Nameless => {
                // Hard links need an unused name; the rename then replaces the older file.
                let hidden = hidden_name(&self.path)?;
                let nameless = format!("/proc/self/fd/{}", self.rows.get_ref().as_raw_fd());
                rustix::fs::linkat(CWD, nameless, CWD, &hidden, AtFlags::SYMLINK_FOLLOW)?;
                std::fs::rename(&hidden, &self.path).inspect_err(|_| {
                    let _ = std::fs::remove_file(&hidden);
                })
            }
        }
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if let Kind::Hidden(hidden) = &self.kind {
            // After the rename this file no longer exists.
            let _ = std::fs::remove_file(hidden);
        }
    }
}

/// Target of a path.
#[derive(Debug, PartialEq)]
pub(crate) enum FileTarget {
    /// A file, existing or not. For a symbolic link, its target.
    File(PathBuf),
    /// A device, a pipe, or a descriptor of this process such as `/dev/stdout`, which must not be
    /// replaced.
    Special,
}

impl FileTarget {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let descriptors = ["/proc", "/dev/fd"];
        let leads_to_descriptor =
            |path: &Path| descriptors.iter().any(|folder| path.starts_with(folder));
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if leads_to_descriptor(path) || (path.exists() && !path.is_file()) {
            return Ok(Self::Special);
        }
        match std::fs::read_link(path) {
            Ok(target) if leads_to_descriptor(&target) => Ok(Self::Special),
            // A dangling link is replaced.
            Ok(_) => Ok(Self::File(path.canonicalize().unwrap_or_else(|_| path.to_owned()))),
            Err(_) => Ok(Self::File(path.to_owned())),
        }
    }
}

/// Opens a special file. A descriptor may be a file that other programs write to as well.
pub(crate) fn open_special(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
}

fn create(path: &Path) -> io::Result<(Kind, PathBuf, File)> {
    let path = match FileTarget::of(path)? {
        FileTarget::Special => return Ok((Kind::Special, path.to_owned(), open_special(path)?)),
        FileTarget::File(path) => path,
    };
    let hidden = hidden_name(&path)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
        Ok(file) => Ok((Kind::Nameless, path, file.into())),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let file = File::create(&hidden)?;
            Ok((Kind::Hidden(hidden), path, file))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Returns a hidden name next to `path`, so that a rename stays within one file system.
pub(crate) fn hidden_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn complete_file_replaces_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "older").unwrap();
        let mut file = TraceFile::create("the rows", &path).unwrap();
        file.rows().write_all(b"newer").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "older");
        file.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "newer");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn unfinished_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = TraceFile::create("the rows", &folder.path().join("t.csv")).unwrap();
        file.rows().write_all(&vec![b'x'; 100_000]).unwrap();
        if matches!(file.kind, Kind::Nameless) {
            assert_eq!(
                std::fs::read_dir(folder.path()).unwrap().count(),
                0,
                "a killed link would leave a file"
            );
        }
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn device_is_written_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        TraceFile::create("the rows", &path).unwrap().finish().unwrap();
        assert!(path.is_symlink() && path.metadata().unwrap().rdev() != 0);
    }

    #[test]
    fn symbolic_link_stays_and_its_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (target, path) = (folder.path().join("target.csv"), folder.path().join("t.csv"));
        std::fs::write(&target, "older").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let mut file = TraceFile::create("the rows", &path).unwrap();
        file.rows().write_all(b"newer").unwrap();
        file.finish().unwrap();
        assert!(path.is_symlink());
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "newer");
    }

    #[test]
    fn descriptor_of_this_process_is_not_replaced_by_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("redirected")).unwrap();
        let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = folder.path().join("stdout");
        std::os::unix::fs::symlink(&descriptor, &link).unwrap();
        for path in [link, descriptor.into(), format!("/dev/fd/{}", file.as_raw_fd()).into()] {
            assert_eq!(FileTarget::of(&path).unwrap(), FileTarget::Special, "{}", path.display());
        }
    }

    #[test]
    fn unwritable_path_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("missing/t.csv"), folder.path().to_owned()] {
            let error = TraceFile::create("the rows", &path).unwrap_err();
            assert_eq!(error.exit_code(), 73);
            assert!(error.to_string().starts_with("cannot write the rows "), "{error}");
        }
    }
}
