//! Mutual TLS between signers and their clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_engine::provider;
use rustls::client::Resumption;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A file that cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct TlsError {
    /// Path of the file.
    pub path: PathBuf,
    /// What is wrong.
    pub reason: String,
    /// Error of the system, if the file cannot be read.
    pub kind: Option<std::io::ErrorKind>,
}

impl TlsError {
    fn new(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self { path: path.to_owned(), reason: format!("{reason}"), kind: None }
    }
}

/// Returns the TLS configuration of a client: its certificate chain and key, and the authorities
/// that may issue certificates of signers.
///
/// # Errors
///
/// Returns an error if a file cannot be read or has other content.
pub fn client_tls(cert: &Path, key: &Path, ca: &Path) -> Result<Arc<ClientConfig>, TlsError> {
    let (chain, private) = (chain(cert)?, private_key(key)?);
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(cert, error))?
        .with_root_certificates(authorities(ca)?)
        .with_client_auth_cert(chain, private)
        .map_err(|error| unusable(cert, key, &error))?;
    // A resumed session would present the client's certificate of before a reload.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Returns the TLS configuration of a server: its certificate chain and key, and the verifier of
/// its clients' certificates.
///
/// # Errors
///
/// Returns an error if a file cannot be read or has other content.
pub fn server_tls(
    cert: &Path,
    key: &Path,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, private) = (chain(cert)?, private_key(key)?);
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(cert, error))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, private)
        .map_err(|error| unusable(cert, key, &error))?;
    // Each connection proves its certificate again.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn unusable(cert: &Path, key: &Path, error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::new(
            key,
            format_args!("the key does not belong to the certificate in {}", cert.display()),
        ),
        other => TlsError::new(key, other),
    }
}

/// Reads the certificates of authorities.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(path)? {
        roots.add(certificate).map_err(|error| TlsError::new(path, error))?;
    }
    Ok(roots)
}

pub(crate) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = read(path).and_then(|text| {
        CertificateDer::pem_slice_iter(&text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| TlsError::new(path, format_args!("no usable certificate ({error})")))
    })?;
    if found.is_empty() {
        return Err(TlsError::new(path, "contains no certificate in PEM form"));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            TlsError::new(path, "contains no unencrypted private key in PEM form")
        }
        other => TlsError::new(path, format_args!("contains no usable private key ({other})")),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path)
        .map_err(|error| TlsError { kind: Some(error.kind()), ..TlsError::new(path, error) })
}
