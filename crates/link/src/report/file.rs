//! The file of a report.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::trace_file::{FileTarget, hidden_name, open_special};

/// A report file that is written completely or not at all.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    /// `None` for a device, a pipe or a descriptor, which must not be replaced by a file.
    temporary: Option<PathBuf>,
}

impl ReportFile {
    /// Checks at the start whether a report can be written to `path` at the end, without creating a
    /// file.
    pub fn prepare(path: &Path) -> Result<Self, crate::Error> {
        let failed = |source| crate::Error::Report { path: path.to_owned(), source };
        let path = match FileTarget::of(path).map_err(failed)? {
            FileTarget::Special => return Ok(Self { path: path.to_owned(), temporary: None }),
            FileTarget::File(path) => path,
        };
        let temporary = hidden_name(&path).map_err(failed)?;
        File::create(&temporary).and_then(|_| std::fs::remove_file(&temporary)).map_err(failed)?;
        Ok(Self { path, temporary: Some(temporary) })
    }

    /// Writes `content` as JSON, replacing an older report.
    pub fn write(&self, content: &impl Serialize) -> Result<(), crate::Error> {
        let written = match &self.temporary {
            None => {
                open_special(&self.path).and_then(|mut special| special.write_all(&json(content)?))
            }
            Some(temporary) => write_whole(temporary, content)
                .and_then(|()| std::fs::rename(temporary, &self.path))
                .inspect_err(|_| {
                    // Remove the partial file; if that fails too, report the earlier error.
                    let _ = std::fs::remove_file(temporary);
                }),
        };
        written.map_err(|source| crate::Error::Report { path: self.path.clone(), source })
    }
}

fn write_whole(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&json(content)?)?;
    file.sync_data()
}

fn json(content: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_replaces_an_older_one_and_leaves_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        std::fs::write(&path, "older").unwrap();
        let file = ReportFile::prepare(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "older");
        file.write(&[1, 2]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn device_is_written_in_place() {
        use std::os::unix::fs::FileTypeExt;

        // Through a symbolic link, so that a mistake only destroys the link.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        ReportFile::prepare(&path).unwrap().write(&1).unwrap();
        assert!(path.is_symlink() && path.metadata().unwrap().file_type().is_char_device());
    }

    #[test]
    fn unwritable_path_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("missing/r.json"), folder.path().to_owned()] {
            let error = ReportFile::prepare(&path).unwrap_err();
            assert_eq!(error.exit_code(), 73);
            assert!(error.to_string().starts_with("cannot write the report "), "{error}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
