//! The server's secret, stored in a file so that it survives a restart.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pronghorn_engine::Secret;

const NAME: &str = "secret";
/// Bits of a file's mode that give access to other users than the owner.
const OTHERS: u32 = 0o077;

/// Why the secret is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file or its folder cannot be read or created.
    #[error("cannot store the secret in {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file was not created by this server or is incomplete.
    #[error("invalid secret file {}: {bytes} bytes, expected {}", path.display(), Secret::BYTES)]
    WrongSize {
        /// The file.
        path: PathBuf,
        /// Size of the file in bytes.
        bytes: u64,
    },
    /// Other users may read or write the file.
    #[error("secret file {} is accessible to other users (mode {mode:o})", path.display())]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Mode of the file.
        mode: u32,
    },
    /// The file belongs to another user, who knows the secret.
    #[error("secret file {} belongs to another user", path.display())]
    ForeignOwner {
        /// The file.
        path: PathBuf,
    },
}

/// Returns the secret stored in `folder`, in a file that only its owner can read. Creates it at the
/// first call.
///
/// # Errors
///
/// If the folder cannot be written, or the file there is not a safe secret.
pub fn stored_secret(folder: &Path) -> Result<Secret, SecretError> {
    let path = folder.join(NAME);
    let fail = |source| SecretError::File { path: path.clone(), source };
    match File::open(&path) {
        Ok(file) => return read(&path, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
    match create(folder, &path) {
        Ok(secret) => Ok(secret),
        // Another server has created it meanwhile; both must use the same secret.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(&path, File::open(&path).map_err(fail)?)
        }
        Err(error) => Err(fail(error)),
    }
}

fn read(path: &Path, file: File) -> Result<Secret, SecretError> {
    let fail = |source| SecretError::File { path: path.to_owned(), source };
    // Checked on the open file, which cannot be replaced any more.
    let metadata = file.metadata().map_err(fail)?;
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(SecretError::OpenToOthers { path: path.to_owned(), mode });
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(SecretError::ForeignOwner { path: path.to_owned() });
    }
    let wrong_size = |bytes| SecretError::WrongSize { path: path.to_owned(), bytes };
    if !metadata.is_file() || metadata.len() != Secret::BYTES as u64 {
        return Err(wrong_size(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(Secret::BYTES + 1);
    file.take(Secret::BYTES as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    let bytes: [u8; Secret::BYTES] =
        bytes.try_into().map_err(|bytes: Vec<u8>| wrong_size(bytes.len() as u64))?;
    Ok(Secret::new(bytes))
}

/// Writes a temporary file and renames it when it is complete, unless the name exists.
fn create(folder: &Path, path: &Path) -> io::Result<Secret> {
    let secret = Secret::random();
    let mut file =
        tempfile::Builder::new().permissions(Permissions::from_mode(0o600)).tempfile_in(folder)?;
    file.write_all(secret.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|error| error.error)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path) -> [u8; Secret::BYTES] {
        *stored_secret(folder).unwrap().as_bytes()
    }

    #[test]
    fn secret_is_kept_where_only_its_owner_can_read_it() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("new/state");
        let first = kept(&folder);
        assert_eq!(kept(&folder), first);
        let mode = std::fs::metadata(folder.join(NAME)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_ne!(kept(&base.path().join("other")), first);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn servers_that_start_together_get_the_same_secret() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("state");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let folder = folder.clone();
                std::thread::spawn(move || kept(&folder))
            })
            .collect();
        let secrets: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    }

    #[test]
    fn secret_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        kept(folder.path());
        std::fs::set_permissions(folder.path().join(NAME), Permissions::from_mode(0o640)).unwrap();
        let error = stored_secret(folder.path()).unwrap_err();
        assert!(matches!(error, SecretError::OpenToOthers { mode: 0o640, .. }), "{error}");
    }

    #[test]
    fn file_of_another_size_is_refused_and_left_alone() {
        for content in [&[][..], &[7; Secret::BYTES - 1], &[7; Secret::BYTES + 1]] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(NAME);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let error = stored_secret(folder.path()).unwrap_err();
            assert!(matches!(error, SecretError::WrongSize { .. }), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
    }

    #[test]
    fn folder_in_its_place_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::DirBuilder::new().mode(0o700).create(folder.path().join(NAME)).unwrap();
        assert!(matches!(stored_secret(folder.path()), Err(SecretError::WrongSize { .. })));
    }
}
