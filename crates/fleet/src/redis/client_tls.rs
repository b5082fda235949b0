//! TLS towards Redis servers.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// How connections to `rediss://` servers are secured.
#[derive(Clone)]
pub struct RedisTls(Arc<ClientConfig>);

/// Why TLS towards Redis cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read or is not in PEM form.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: pem::Error,
    },
    /// A file of certificates has none.
    #[error("{} contains no certificate; give certificates in PEM form", .0.display())]
    NoCertificate(PathBuf),
    /// TLS refuses a certificate or a key.
    #[error("invalid certificate or key for Redis: {0}")]
    Invalid(#[from] rustls::Error),
}

impl TlsError {
    /// Returns the system's error if a file could not be read.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::File { source: pem::Error::Io(error), .. } => Some(error),
            _ => None,
        }
    }
}

impl RedisTls {
    /// Trusts the authorities in the file `ca`, or the system's if there is none. `identity` is the
    /// client's certificate chain and its key, which servers with `tls-auth-clients` require.
    pub fn new(ca: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = ca {
            for certificate in certificates(path)? {
                roots.add(certificate)?;
            }
        } else {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let builder = ClientConfig::builder_with_provider(pronghorn_engine::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key_file = key;
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|source| TlsError::File { path: key_file.to_owned(), source })?;
                builder.with_client_auth_cert(certificates(chain)?, key)?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        self.0.clone().into()
    }
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisTls(..)")
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fail = |source| TlsError::File { path: path.to_owned(), source };
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(fail)?
        .collect::<Result<_, _>>()
        .map_err(fail)?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate(path.to_owned()));
    }
    Ok(certificates)
}
