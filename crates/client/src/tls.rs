//! Whom a client trusts.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Whom a client trusts.
#[derive(Clone, Default)]
pub enum Roots {
    /// Whom the system trusts.
    #[default]
    System,
    /// The certificates in this PEM text, and nobody else.
    Pem(Arc<[u8]>),
    /// What this says, client certificates included. The protocols are set as needed.
    Config(Arc<ClientConfig>),
}

/// Why there is nobody to trust.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootsError {
    /// The text holds no certificate, or one that cannot be used.
    #[error("no usable certificate to trust: {0}; give certificates in PEM form")]
    Malformed(String),
    /// TLS cannot be had.
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

impl Roots {
    /// Trusts the certificates in this PEM text, and nobody else.
    ///
    /// ```no_run
    /// use pronghorn_client::{Options, Roots};
    ///
    /// let options = Options { roots: Roots::pem(std::fs::read("/etc/ssl/our-own.pem")?), ..Options::default() };
    /// # let _ = options;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pem(text: impl AsRef<[u8]>) -> Self {
        Self::Pem(text.as_ref().into())
    }

    /// A TLS configuration that trusts them, which many pools can share as [`Roots::Config`]: reading the system's takes its time.
    ///
    /// # Errors
    ///
    /// When a text holds no certificate.
    pub fn to_config(&self) -> Result<ClientConfig, RootsError> {
        let mut roots = RootCertStore::empty();
        match self {
            Self::Config(config) => return Ok(ClientConfig::clone(config)),
            Self::System => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
            Self::Pem(text) => {
                for certificate in CertificateDer::pem_slice_iter(text) {
                    let certificate = certificate.map_err(|error| RootsError::Malformed(error.to_string()))?;
                    roots.add(certificate).map_err(|error| RootsError::Malformed(error.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(RootsError::Malformed("the text holds none".to_owned()));
                }
            }
        }
        let config = ClientConfig::builder_with_provider(pronghorn_engine::provider()).with_safe_default_protocol_versions()?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Whether the system trusts a root with this name, which is a `Name` in DER (RFC 5280 section 4.1.2.4). The system is asked once.
pub fn is_system_root(name: &[u8]) -> bool {
    static NAMES: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.roots.iter().map(|root| root.subject.to_vec()).collect()
    });
    // The names of trust anchors are without the tag and the length of their SEQUENCE.
    let header = match name.get(1) {
        Some(length) if *length >= 0x80 => 2 + usize::from(length & 0x7f),
        _ => 2,
    };
    name.get(header..).is_some_and(|name| NAMES.contains(name))
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Pem(_) => "Pem",
            Self::Config(_) => "Config",
        })
    }
}
