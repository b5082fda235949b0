//! Secrets in a file of the operator.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Secrets, SecretsError};

/// Bits of a file's mode that give access to other users than the owner.
const OTHERS: u32 = 0o077;
/// Largest file in bytes: the secrets, with comments.
const FILE_BYTES: u64 = 16 << 10;
const ROOT: u32 = 0;

impl Secrets {
    /// Reads secrets from a file that only its owner can read, who is this process's user or root.
    /// [`Secrets::parse`] describes the content.
    pub fn from_file(path: &Path) -> Result<Self, SecretsError> {
        let fail = |source| SecretsError::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(fail)?;
        // Checked on the open file, which cannot be replaced any more.
        let metadata = file.metadata().map_err(fail)?;
        if !metadata.is_file() {
            return Err(fail(std::io::Error::other("not a regular file")));
        }
        let mode = metadata.mode() & 0o7777;
        if mode & OTHERS != 0 {
            return Err(SecretsError::OpenToOthers { path: path.to_owned(), mode });
        }
        if ![ROOT, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
            return Err(SecretsError::ForeignOwner { path: path.to_owned() });
        }
        let mut content = Vec::new();
        file.take(FILE_BYTES + 1).read_to_end(&mut content).map_err(fail)?;
        if content.len() as u64 > FILE_BYTES {
            return Err(fail(std::io::Error::other(format!("larger than {FILE_BYTES} bytes"))));
        }
        Self::parse(&content).map_err(|source| SecretsError::Content {
            path: path.to_owned(),
            source: source.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn file(folder: &tempfile::TempDir, content: &[u8], mode: u32) -> PathBuf {
        let path = folder.path().join("secrets");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn file_of_the_owner_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let content = format!("{}\n{}\n", "01ab".repeat(16), "02ab".repeat(16));
        let secrets = Secrets::from_file(&file(&folder, content.as_bytes(), 0o400)).unwrap();
        assert_eq!(secrets.all().len(), 2);
    }

    #[test]
    fn file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = Secrets::from_file(&file(&folder, &[7; 32], 0o640)).unwrap_err();
        assert!(matches!(error, SecretsError::OpenToOthers { mode: 0o640, .. }), "{error}");
    }

    #[test]
    fn missing_large_and_malformed_files_name_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Secrets::from_file(&folder.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("/none: "), "{missing}");
        let directory = Secrets::from_file(folder.path()).unwrap_err().to_string();
        assert!(directory.contains("regular file"), "{directory}");
        let large = vec![b'#'; FILE_BYTES as usize + 1];
        let large = Secrets::from_file(&file(&folder, &large, 0o600)).unwrap_err().to_string();
        assert!(large.contains("larger than"), "{large}");
        let short = Secrets::from_file(&file(&folder, b"\nab\n", 0o600)).unwrap_err().to_string();
        assert!(short.contains("secrets: ") && short.contains("line 2"), "{short}");
    }
}
