//! The client's trust roots.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, LazyLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Certificate roots that a client trusts.
#[derive(Clone, Default)]
pub enum Roots {
    /// The system's roots.
    #[default]
    System,
    /// Only the certificates in this PEM text.
    Pem(Arc<[u8]>),
    /// A complete TLS configuration, including client certificates. The ALPN protocols are set as
    /// needed.
    Config(Arc<ClientConfig>),
}

/// Reason why no trust roots are available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootsError {
    /// The text contains no certificate, or an invalid one.
    #[error("no usable certificate to trust: {0}; give certificates in PEM form")]
    Malformed(String),
    /// TLS cannot be initialized.
    #[error("TLS cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

impl Roots {
    /// Trusts only the certificates in this PEM text.
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

    /// Returns a TLS configuration that trusts these roots. Several pools can share it as
    /// [`Roots::Config`], because loading the system's roots takes time.
    ///
    /// # Errors
    ///
    /// Returns an error if the text contains no certificate.
    pub fn to_config(&self) -> Result<ClientConfig, RootsError> {
        let mut roots = RootCertStore::empty();
        match self {
            Self::Config(config) => return Ok(ClientConfig::clone(config)),
            Self::System => drop(
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
            ),
            Self::Pem(text) => {
                for certificate in CertificateDer::pem_slice_iter(text) {
                    let certificate =
                        certificate.map_err(|error| RootsError::Malformed(error.to_string()))?;
                    roots
                        .add(certificate)
                        .map_err(|error| RootsError::Malformed(error.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(RootsError::Malformed("the text contains none".to_owned()));
                }
            }
        }
        let config = ClientConfig::builder_with_provider(pronghorn_engine::provider())
            .with_safe_default_protocol_versions()?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Returns whether the system trusts a root with this name, a DER-encoded `Name` (RFC 5280, section
/// 4.1.2.4). The system's roots are loaded once.
pub fn is_system_root(name: &[u8]) -> bool {
    static NAMES: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.roots.iter().map(|root| root.subject.to_vec()).collect()
    });
    // Names of trust anchors lack the tag and length of their SEQUENCE.
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
