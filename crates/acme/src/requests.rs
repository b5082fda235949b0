//! The names that need certificates, and the settings for ordering them.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::check::{LETS_ENCRYPT, check_host};
use super::managed_certificate::ManagedCertificate;
use super::store::Store;

/// A challenge that an authority uses to validate control of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Challenge {
    /// A TLS handshake on port 443 (RFC 8737).
    TlsAlpn01,
    /// A clear-text request on port 80 (RFC 8555, section 8.3).
    Http01,
}

/// An external account with the authority (RFC 8555, section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    pub(super) id: String,
    pub(super) key: Vec<u8>,
}

impl ExternalAccount {
    /// Returns an account, given its key identifier and its MAC key in base64url, as the authority
    /// shows it. `None` if the key is empty or not base64url.
    pub fn new(id: impl Into<String>, key: &str) -> Option<Self> {
        let key = BASE64_URL_SAFE_NO_PAD.decode(key.trim_end_matches('=')).ok()?;
        (!key.is_empty()).then(|| Self { id: id.into(), key })
    }
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Settings for ordering certificates.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// URL of the authority's directory. Default: Let's Encrypt.
    pub directory: String,
    /// Whether the operator agrees to the authority's terms of service. Without it no account is
    /// created.
    pub terms_agreed: bool,
    /// Email address that the authority writes to about problems.
    pub email: Option<String>,
    /// Certificate profile, if the authority offers several.
    pub profile: Option<String>,
    /// Account that orders are bound to, if the authority requires one.
    pub external_account: Option<ExternalAccount>,
    /// Root certificates of the authority's own server, as PEM text; `None` for the system's.
    pub trust: Option<Arc<[u8]>>,
    /// Challenges that can be answered, in the order in which they are tried. Default: both.
    pub challenges: Vec<Challenge>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            directory: LETS_ENCRYPT.to_owned(),
            terms_agreed: false,
            email: None,
            profile: None,
            external_account: None,
            trust: None,
            challenges: vec![Challenge::TlsAlpn01, Challenge::Http01],
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, terms_agreed, email, profile, external_account, trust, challenges } =
            self;
        f.debug_struct("Settings")
            .field("directory", directory)
            .field("terms_agreed", terms_agreed)
            .field("email", email)
            .field("profile", profile)
            .field("external_account", external_account)
            .field("trust_bytes", &trust.as_ref().map(|pem| pem.len()))
            .field("challenges", challenges)
            .finish()
    }
}

/// The names that need certificates.
#[derive(Clone, Debug)]
pub struct CertificateRequests {
    pub(super) settings: Arc<Settings>,
    pub(super) store: Arc<Store>,
    pub(super) slots: Vec<Arc<ManagedCertificate>>,
}

impl CertificateRequests {
    /// Returns a set without names. Certificates and the account are stored below `state_dir`.
    pub fn new(settings: Settings, state_dir: &Path) -> Self {
        let store = Arc::new(Store::new(
            state_dir,
            &settings.directory,
            settings.external_account.as_ref().map(|account| account.id.as_str()),
        ));
        Self { settings: Arc::new(settings), store, slots: Vec::new() }
    }

    /// Adds a name, in lower case, and returns its certificate: that of `before`, or a new one with
    /// the certificate stored on disk.
    ///
    /// # Errors
    ///
    /// Returns an error if the stored certificate cannot be read, or the name is not that of a host
    /// ([`check_host`](crate::check_host)).
    pub fn certificate(
        &mut self,
        host: &str,
        before: Option<&Self>,
    ) -> io::Result<Arc<ManagedCertificate>> {
        // The name becomes a file name.
        check_host(host, &self.settings.directory).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{host}: {error}"))
        })?;
        let named = |wanted: &Self| wanted.slots.iter().find(|slot| slot.host() == host).cloned();
        if let Some(slot) = named(self) {
            return Ok(slot);
        }
        let slot = match before.filter(|before| before.store == self.store).and_then(named) {
            Some(slot) => slot,
            None => Arc::new(ManagedCertificate::new(host, self.store.certificate(host)?)),
        };
        self.slots.push(slot.clone());
        Ok(slot)
    }
}

/// Receiver of log lines.
pub(super) type LogLine = dyn Fn(&str) + Send + Sync;
