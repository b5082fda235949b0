//! A development certificate, created when it is first needed.

use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage};

use crate::error::CertificateError;
use crate::loaded::Loaded;

/// Validity of a development certificate. Browsers accept certificates by their hash only if they
/// are valid for at most 14 days.
const VALIDITY: Duration = Duration::from_hours(13 * 24);
/// A certificate with less remaining validity than this is replaced.
const RENEWAL: Duration = Duration::from_hours(24);

/// Returns the folder in which the program `pronghorn` stores its development certificate:
/// `pronghorn` in the user's data folder (XDG Base Directory Specification), or `None` if there is
/// no home folder.
pub fn user_folder() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("pronghorn"))
}

impl Loaded {
    /// Loads the development certificate in `folder` (`cert.pem`, with its key in `key.pem`), or
    /// creates it if there is none or it expires within a day: ECDSA P-256, self-signed, valid for
    /// 13 days, for `localhost`, the loopback addresses and this machine's name.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be written or the system has no randomness.
    pub fn for_development(folder: &Path) -> Result<Self, CertificateError> {
        let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        let kept = || is_fresh(&cert).then(|| Self::from_files(&cert, &key).ok()).flatten();
        if let Some(loaded) = kept() {
            return Ok(loaded);
        }
        // Processes or threads that start at the same time must end up with one pair, not with the
        // key of another's certificate.
        let file = |source| CertificateError::Store { folder: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(file)?;
        let lock = std::fs::File::open(folder).map_err(file)?;
        // Not every file system can lock folders; without a lock a race is possible.
        let _ = lock.lock();
        if let Some(loaded) = kept() {
            return Ok(loaded);
        }
        let (cert_pem, key_pem) =
            generate().map_err(|error| CertificateError::Generation(error.to_string()))?;
        write_atomically(folder, &key, &key_pem, 0o600)?;
        write_atomically(folder, &cert, &cert_pem, 0o644)?;
        Self::from_files(&cert, &key)
    }
}

/// Returns whether the certificate exists and is valid for long enough.
fn is_fresh(path: &Path) -> bool {
    let Ok(certificate) = CertificateDer::from_pem_file(path) else { return false };
    let Ok(end_entity) = EndEntityCert::try_from(&certificate) else { return false };
    let Ok(anchor) = webpki::anchor_from_trusted_cert(&certificate) else { return false };
    let Ok(since_epoch) = (SystemTime::now() + RENEWAL).duration_since(SystemTime::UNIX_EPOCH)
    else {
        return false;
    };
    // The certificate is self-signed and so its own anchor: this checks its dates.
    let time = UnixTime::since_unix_epoch(since_epoch);
    let provider = pronghorn_engine::provider();
    let algorithms = provider.signature_verification_algorithms.all;
    end_entity
        .verify_for_usage(algorithms, &[anchor], &[], time, KeyUsage::server_auth(), None, None)
        .is_ok()
}

fn generate() -> Result<(String, String), rcgen::Error> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut names = vec!["localhost".to_owned()];
    if let Ok(name) = rustix::system::uname().nodename().to_str()
        && !name.is_empty()
        && name != "localhost"
    {
        names.push(name.to_owned());
    }
    let mut parameters = rcgen::CertificateParams::new(names)?;
    for address in [IpAddr::from([127, 0, 0, 1]), std::net::Ipv6Addr::LOCALHOST.into()] {
        parameters.subject_alt_names.push(rcgen::SanType::IpAddress(address));
    }
    parameters
        .distinguished_name
        .push(rcgen::DnType::CommonName, "Pronghorn development certificate");
    parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    // One hour in the past, for clients whose clock is slow.
    let begin = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
    parameters.not_before = begin;
    parameters.not_after = begin + VALIDITY;
    Ok((parameters.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Writes a temporary file and renames it, so that no reader sees a partial file.
fn write_atomically(
    folder: &Path,
    path: &Path,
    content: &str,
    mode: u32,
) -> Result<(), CertificateError> {
    let write = || {
        let mut file = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(mode))
            .tempfile_in(folder)?;
        // Its own errors would name the temporary file, which does not help.
        file.as_file_mut().write_all(content.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    };
    write()
        .map(drop)
        .map_err(|source| CertificateError::Store { folder: folder.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn development_certificate_is_kept() {
        let folder = folder();
        let first = Loaded::for_development(folder.path()).unwrap();
        let second = Loaded::for_development(folder.path()).unwrap();
        assert_eq!(first.spki_sha256, second.spki_sha256);
        let mode = std::fs::metadata(folder.path().join("key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others can read the key");
    }

    #[test]
    fn many_that_make_it_at_once_get_the_same() {
        for _ in 0..10 {
            let folder = folder();
            let make = || Loaded::for_development(folder.path()).unwrap().spki_sha256;
            let made: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(made.iter().all(|one| *one == made[0]), "{made:?}");
        }
    }

    #[test]
    fn damaged_development_certificate_is_made_anew() {
        for damaged in ["cert.pem", "key.pem"] {
            let folder = folder();
            let first = Loaded::for_development(folder.path()).unwrap();
            std::fs::write(folder.path().join(damaged), "not what it was").unwrap();
            let second = Loaded::for_development(folder.path()).unwrap();
            assert_ne!(first.spki_sha256, second.spki_sha256, "{damaged}");
        }
    }

    #[test]
    fn development_certificate_that_runs_out_is_made_anew() {
        let folder = folder();
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.not_after = time::OffsetDateTime::now_utc() + time::Duration::hours(23);
        let old = parameters.self_signed(&key).unwrap().pem();
        std::fs::write(folder.path().join("cert.pem"), &old).unwrap();
        std::fs::write(folder.path().join("key.pem"), key.serialize_pem()).unwrap();
        Loaded::for_development(folder.path()).unwrap();
        assert_ne!(std::fs::read_to_string(folder.path().join("cert.pem")).unwrap(), old);
    }

    #[test]
    fn key_of_another_certificate_is_refused() {
        let (one, other) = (folder(), folder());
        Loaded::for_development(one.path()).unwrap();
        Loaded::for_development(other.path()).unwrap();
        let mixed = Loaded::from_files(&one.path().join("cert.pem"), &other.path().join("key.pem"));
        assert!(matches!(mixed, Err(CertificateError::Unusable { .. })), "{mixed:?}");
    }

    #[test]
    fn chain_and_key_as_text_are_the_same_as_in_files() {
        let folder = folder();
        let from_files = Loaded::for_development(folder.path()).unwrap();
        let [cert, key] =
            ["cert.pem", "key.pem"].map(|name| std::fs::read(folder.path().join(name)).unwrap());
        assert_eq!(Loaded::from_pem(&cert, &key).unwrap().spki_sha256, from_files.spki_sha256);
        let swapped = Loaded::from_pem(&key, &cert).unwrap_err();
        assert_eq!(
            swapped.to_string(),
            "the certificate chain: contains no certificate in PEM form; the key: contains no \
                private key in PEM form"
        );
    }

    #[test]
    fn file_without_a_certificate_is_malformed() {
        let folder = folder();
        Loaded::for_development(folder.path()).unwrap();
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let swapped = Loaded::from_files(&key, &cert);
        let CertificateError::Both(both) = swapped.unwrap_err() else { panic!("one file only") };
        assert!(
            matches!(
                *both,
                [CertificateError::Malformed { .. }, CertificateError::Malformed { .. }]
            ),
            "{both:?}"
        );
        let missing = Loaded::from_files(&folder.path().join("none.pem"), &key);
        assert!(matches!(missing, Err(CertificateError::File { .. })), "{missing:?}");
    }
}
