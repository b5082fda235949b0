//! Files kept over restarts: the account, certificates with their keys, and refusals.
//!
//! Each file is replaced atomically, so that a process that is killed at any moment leaves the old
//! or the new content. Temporary files that it leaves are removed by the next process: writers
//! share a lock, which the system releases when a process dies, so a process that holds it
//! exclusively knows that there is no writer.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use instant_acme::AccountCredentials;
use pronghorn_certificates::{CertificateError, Loaded};
use rustls::sign::CertifiedKey;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

use super::schedule::{Lifetime, Refusals};

/// The folder of one authority, below `state_dir`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Store {
    folder: PathBuf,
    /// The file of the account.
    account: PathBuf,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub(super) struct StoredCertificate {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) lifetime: Lifetime,
}

impl StoredCertificate {
    /// Reads the key and the chain from PEM text.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, CertificateError> {
        let key = Loaded::from_pem(pem, pem)?.key;
        let lifetime = lifetime(&key)
            .ok_or_else(|| CertificateError::Generation("cannot read its validity".to_owned()))?;
        Ok(Self { key, lifetime })
    }
}

/// Returns the period in which a certificate is valid; `None` if it cannot be read.
pub fn lifetime(key: &CertifiedKey) -> Option<Lifetime> {
    let (_, certificate) = x509_parser::parse_x509_certificate(key.end_entity_cert().ok()?).ok()?;
    let validity = certificate.validity();
    let time = |time: x509_parser::time::ASN1Time| {
        let seconds = u64::try_from(time.timestamp()).unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    };
    Some(Lifetime { from: time(validity.not_before), until: time(validity.not_after) })
}

impl Store {
    /// The folder is named after the authority's host, plus a hash that distinguishes its
    /// directories, such as staging and production. `external`: the identifier of the external
    /// account; each has its own account file.
    pub(super) fn new(state_dir: &Path, directory: &str, external: Option<&str>) -> Self {
        let uri = directory.parse::<http::Uri>().unwrap_or_default();
        let name = format!("{}-{:08x}", uri.host().unwrap_or("authority"), short_hash(directory));
        let folder = state_dir.join("acme").join(name);
        let account = external.map_or_else(
            || "account.json".to_owned(),
            |id| format!("account-{:08x}.json", short_hash(id)),
        );
        Self { account: folder.join(account), folder }
    }

    /// Creates the folder, checks that it is writable, and removes incomplete files left in it.
    pub(super) fn make(&self) -> io::Result<()> {
        let certificates = self.folder.join("certificates");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&certificates);
        let tried = made.and_then(|()| tempfile::tempfile_in(&certificates).map(drop));
        tried.map_err(|error| at(&certificates, &error))?;
        self.tidy();
        Ok(())
    }

    /// Removes incomplete files of killed processes. If a process is writing now, they stay until
    /// the next start.
    fn tidy(&self) {
        // Without file locks it is unknown whether there is a writer.
        let Ok(alone) = open_lock(&self.writing_lock()) else { return };
        if alone.try_lock().is_err() {
            return;
        }
        for folder in [self.folder.clone(), self.folder.join("certificates")] {
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            for entry in entries.flatten() {
                let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
                if is_file && entry.file_name().to_str().is_some_and(is_temporary) {
                    remove(&entry.path());
                }
            }
        }
    }

    /// Returns the lock shared by all writers in all processes.
    fn writing_lock(&self) -> PathBuf {
        self.folder.join("writing.lock")
    }

    /// Writes a temporary file and renames it; then both the content and the name are on disk.
    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.try_write(path, content).map_err(|error| at(path, &error))
    }

    fn try_write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let writing = open_lock(&self.writing_lock())?;
        // Without file locks, no files are removed either.
        let _ = writing.lock_shared();
        let mut file = temporary(folder)?;
        // Its own errors would name the temporary file, which does not help.
        file.as_file_mut().write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    }

    /// Checks that there is disk space for an account.
    pub(super) fn try_account(&self) -> io::Result<()> {
        let tried = temporary(&self.folder).and_then(|mut file| {
            file.as_file_mut().write_all(&[b' '; 4_096]).and_then(|()| file.as_file().sync_all())
        });
        tried.map_err(|error| at(&self.folder, &error))
    }

    fn write_json(&self, path: &Path, value: &impl Serialize) -> io::Result<()> {
        self.write(path, &serde_json::to_vec(value)?)
    }

    /// Returns the stored certificate of a host; `None` also for a damaged one, which will be
    /// replaced.
    pub(super) fn certificate(&self, host: &str) -> io::Result<Option<StoredCertificate>> {
        let path = self.of(host, "pem");
        match read(&path) {
            Ok(content) => Ok(content.and_then(|pem| StoredCertificate::from_pem(&pem).ok())),
            Err(error) => Err(at(&path, &error)),
        }
    }

    pub(super) fn store_certificate(&self, host: &str, pem: &str) -> io::Result<()> {
        self.write(&self.of(host, "pem"), pem.as_bytes())
    }

    pub(super) fn account(&self) -> Option<AccountCredentials> {
        read_json(&self.account)
    }

    pub(super) fn store_account(&self, account: &AccountCredentials) -> io::Result<()> {
        self.write_json(&self.account, account)
    }

    pub(super) fn remove_account(&self) {
        remove(&self.account);
        remove(&self.contact());
    }

    /// Returns whether this is the last address sent to the authority for the account. If nothing
    /// is stored, no address was sent.
    pub(super) fn is_contact(&self, email: Option<&str>) -> bool {
        let known = read(&self.contact()).ok().flatten().unwrap_or_default();
        known == email.unwrap_or_default().as_bytes()
    }

    /// Stores the address that was sent to the authority. If that fails, it is sent again later,
    /// which does no harm.
    pub(super) fn keep_contact(&self, email: Option<&str>) {
        match email {
            Some(email) => drop(self.write(&self.contact(), email.as_bytes())),
            None => remove(&self.contact()),
        }
    }

    /// Returns the file with the contact address, which the account's own file does not contain.
    fn contact(&self) -> PathBuf {
        self.account.with_extension("contact")
    }

    pub(super) fn refusals(&self, host: &str) -> Refusals {
        read_json(&self.of(host, "refused")).unwrap_or_default()
    }

    pub(super) fn keep_refusals(&self, host: &str, refusals: Refusals) -> io::Result<()> {
        let path = self.of(host, "refused");
        if refusals == Refusals::default() {
            remove(&path);
            return Ok(());
        }
        self.write_json(&path, &refusals)
    }

    /// Allows one of the processes that share the folder to order for a host. Returns `None` if
    /// another one does.
    pub(super) fn lock(&self, host: &str) -> io::Result<Option<File>> {
        lock(&self.of(host, "lock"))
    }

    /// The same for creating the account.
    pub(super) fn lock_account(&self) -> io::Result<Option<File>> {
        lock(&self.folder.join("account.lock"))
    }

    /// Returns the file of a host. Hosts have only letters, digits, dots and dashes.
    fn of(&self, host: &str, kind: &str) -> PathBuf {
        self.folder.join("certificates").join(format!("{host}.{kind}"))
    }
}

/// Prefix and suffix around six letters and digits in the names of temporary files.
const TEMPORARY: (&str, &str) = (".writing-", ".tmp");

fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let (prefix, suffix) = TEMPORARY;
    tempfile::Builder::new()
        .prefix(prefix)
        .suffix(suffix)
        .rand_bytes(6)
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder)
}

/// Returns whether a file name is one of [`temporary`].
fn is_temporary(name: &str) -> bool {
    let between = name.strip_prefix(TEMPORARY.0).and_then(|name| name.strip_suffix(TEMPORARY.1));
    between.is_some_and(|random| {
        random.len() == 6 && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn open_lock(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
}

fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = open_lock(path).map_err(|error| at(path, &error))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(None),
        // Not every file system supports locks; without them a race is possible.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(file)),
    }
}

/// Adds the path to an error.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns a hash that distinguishes names that could not be file names.
fn short_hash(text: &str) -> u32 {
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    hash.as_ref().first_chunk().map(|first| u32::from_be_bytes(*first)).unwrap_or_default()
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&read(path).ok()??).ok()
}

fn remove(path: &Path) {
    // A missing file needs no removal, and one that cannot be removed is replaced later.
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(host: &str) -> String {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let certificate =
            rcgen::CertificateParams::new([host.to_owned()]).unwrap().self_signed(&key).unwrap();
        key.serialize_pem() + &certificate.pem()
    }

    #[test]
    fn certificate_is_kept_for_its_owner_only_and_a_damaged_one_is_none() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path(), "https://authority.example/directory", None);
        store.make().unwrap();
        assert!(store.certificate("a.example").unwrap().is_none());
        store.store_certificate("a.example", &pem("a.example")).unwrap();
        assert!(store.certificate("a.example").unwrap().is_some());
        let path = store.of("a.example", "pem");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let content = std::fs::read(&path).unwrap();
        std::fs::write(&path, &content[..content.len() / 2]).unwrap();
        assert!(store.certificate("a.example").unwrap().is_none());
        // With the key of another certificate.
        let (one, other) = (pem("a.example"), pem("a.example"));
        let at = |text: &str| text.find("-----BEGIN CERTIFICATE").unwrap();
        std::fs::write(&path, one[..at(&one)].to_owned() + &other[at(&other)..]).unwrap();
        assert!(store.certificate("a.example").unwrap().is_none());
    }

    #[test]
    fn only_what_nobody_writes_any_more_is_taken_away() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path(), "https://authority.example/directory", None);
        store.make().unwrap();
        store.store_certificate("a.example", &pem("a.example")).unwrap();
        store.keep_refusals("a.example", Refusals { count: 1, limits: 0, not_before: 1 }).unwrap();
        let certificates = store.folder.join("certificates");
        // Like a process that is killed before the rename.
        let leave = || {
            [&store.folder, &certificates]
                .map(|folder| temporary(folder).unwrap().keep().unwrap().1)
        };
        let left = leave();
        let others = [
            ".tmpAbCdEf",
            ".writing-AbCdE.tmp",
            ".writing-AbCd!f.tmp",
            "writing-AbCdEf.tmp",
            ".writing-AbCdEf.tmp.pem",
        ];
        let others = others.map(|name| certificates.join(name));
        for other in &others {
            std::fs::write(other, "").unwrap();
        }
        let folder = certificates.join(".writing-folder.tmp");
        std::fs::create_dir(&folder).unwrap();

        // Another process writes.
        let other = open_lock(&store.writing_lock()).unwrap();
        other.lock_shared().unwrap();
        store.make().unwrap();
        assert!(left.iter().all(|path| path.exists()));
        store.store_certificate("b.example", &pem("b.example")).unwrap();
        drop(other);

        store.make().unwrap();
        assert!(left.iter().all(|path| !path.exists()));
        assert!(
            others.iter().chain([&folder]).all(|path| path.exists()),
            "files with other names are not touched"
        );
        assert!(
            store.certificate("a.example").unwrap().is_some()
                && store.certificate("b.example").unwrap().is_some()
        );
        assert_eq!(store.refusals("a.example").count, 1);
    }

    #[test]
    fn nothing_is_written_while_it_is_tidied_up() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path(), "https://authority.example/directory", None);
        store.make().unwrap();
        let alone = open_lock(&store.writing_lock()).unwrap();
        alone.try_lock().unwrap();
        std::thread::scope(|scope| {
            let writer =
                scope.spawn(|| store.store_certificate("a.example", &pem("a.example")).unwrap());
            // Whether it is waiting yet or not: it has written nothing.
            assert!(store.certificate("a.example").unwrap().is_none());
            let names = || {
                std::fs::read_dir(store.folder.join("certificates"))
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name())
            };
            assert_eq!(names().count(), 0);
            drop(alone);
            writer.join().unwrap();
        });
        assert!(store.certificate("a.example").unwrap().is_some());
    }

    #[test]
    fn authorities_have_folders_of_their_own() {
        let of = |directory| Store::new(Path::new("/state"), directory, None).folder;
        let [one, other] = ["https://a.example/directory", "https://a.example/staging"].map(of);
        assert_ne!(one, other);
        let account =
            |id| Store::new(Path::new("/state"), "https://a.example/directory", id).account;
        assert_eq!(account(None), one.join("account.json"));
        assert!(
            account(Some("one")) != account(Some("other"))
                && account(Some("../../one")).parent() == Some(&one)
        );
        assert!(one.starts_with("/state/acme") && one.to_string_lossy().contains("a.example"));
    }

    #[test]
    fn one_process_at_a_time_orders_for_a_host() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path(), "https://authority.example/directory", None);
        store.make().unwrap();
        let held = store.lock("a.example").unwrap().unwrap();
        assert!(store.lock("a.example").unwrap().is_none());
        assert!(store.lock("b.example").unwrap().is_some());
        drop(held);
        assert!(store.lock("a.example").unwrap().is_some());
    }

    #[test]
    fn refusals_are_kept_and_forgotten() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path(), "https://authority.example/directory", None);
        store.make().unwrap();
        let refusals = Refusals { count: 3, limits: 1, not_before: 17 };
        store.keep_refusals("a.example", refusals).unwrap();
        assert_eq!(
            (store.refusals("a.example"), store.refusals("b.example")),
            (refusals, Refusals::default())
        );
        store.keep_refusals("a.example", Refusals::default()).unwrap();
        assert!(!store.of("a.example", "refused").exists());
    }
}
