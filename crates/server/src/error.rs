//! Errors of starting and running a server, with hints.

use std::fmt;
use std::io;
use std::path::PathBuf;

use pronghorn_certificates::CertificateError;
use pronghorn_engine::{BindError, CongestionError};

/// Reason why a server cannot serve.
///
/// The message says what to do about it. `Debug` prints the same message, because that is what
/// `main` prints for a returned error.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No address was given.
    #[error("no address to listen on; add one with Server::listen(\"[::]:8443\")")]
    NoAddress,
    /// An address cannot be parsed, or its host name cannot be resolved.
    #[error(
        "cannot listen on {address}: {source}; use HOST:PORT with an address of this machine, such \
            as [::]:8443"
    )]
    Address {
        /// The address as given.
        address: String,
        /// Cause of the failure.
        #[source]
        source: io::Error,
    },
    /// An address is in use, does not belong to this machine, or is not permitted.
    #[error("{0}{hint}", hint = bind_hint(.0))]
    Bind(#[from] BindError),
    /// A TLS address was given without a certificate.
    #[error(
        "missing certificate for the TLS listener; provide one with Server::certificate_files, use \
            Server::development_certificate, or Server::acme (feature acme)"
    )]
    NoCertificate,
    /// Certificates cannot be ordered with these settings.
    #[cfg(feature = "acme")]
    #[error("{0}")]
    Acme(String),
    /// The folder for certificates cannot be used, or the ordering thread cannot be started.
    #[cfg(feature = "acme")]
    #[error(
        "cannot order certificates: {0}; the folder of Acme::new has to be writable for this user"
    )]
    AcmeState(#[source] io::Error),
    /// Certificates are to be ordered, but no address uses TLS.
    #[cfg(feature = "acme")]
    #[error("no TLS address to order certificates for; add one with Server::listen(\"[::]:443\")")]
    AcmeWithoutTls,
    /// The certificate was to be replaced, but the server orders its certificates.
    #[cfg(feature = "acme")]
    #[error("the server orders its certificates itself; remove Server::acme to set others")]
    CertificateOrdered,
    /// The certificate or its key cannot be used.
    #[error("{0}{hint}", hint = certificate_hint(.0))]
    Certificate(#[source] CertificateError),
    /// The identity cannot be used for TLS 1.3, which QUIC requires.
    #[error("the certificate cannot be used for QUIC: {0}; use an ECDSA P-256, RSA or Ed25519 key")]
    Identity(#[from] rustls::Error),
    /// No folder was found for the development certificate.
    #[error(
        "no home folder for the development certificate; set HOME, or provide a certificate with \
            Server::certificate_files"
    )]
    NoHome,
    /// The folder for qlog files cannot be used.
    #[error("cannot write qlog files to {}: {source}; use a folder that this user can write to", folder.display())]
    Qlog {
        /// The folder.
        folder: PathBuf,
        /// Error returned by the system.
        #[source]
        source: io::Error,
    },
    /// The system has no threads or file descriptors left.
    #[error(
        "cannot start: {0}; raise the limits on open files (ulimit -n) and on processes (ulimit \
            -u)"
    )]
    Start(#[source] io::Error),
    /// A worker failed while serving.
    #[error("a worker failed: {0}")]
    Worker(#[source] io::Error),
    /// Cleartext requests are to be redirected, but no address uses TLS.
    #[error("no TLS address to redirect to; add one with Server::listen(\"[::]:443\")")]
    NowhereToRedirect,
    /// Cleartext requests are to be redirected, but no address is in cleartext.
    #[error(
        "no cleartext address to redirect from; add one with Server::listen_clear(\"[::]:80\")"
    )]
    NothingToRedirect,
    /// WebTransport is offered over HTTP/3 alone, which needs TLS.
    #[error("no TLS address for WebTransport; add one with Server::listen(\"[::]:443\")")]
    WebTransportWithoutTls,
    /// The number of workers is out of range.
    #[error("invalid number of workers: {0}; use 1 to 256")]
    Workers(usize),
    /// An address was given twice.
    #[error(
        "{0} is listed twice; TLS and cleartext cannot share a port: remove one, or choose another \
            port"
    )]
    AddressTwice(std::net::SocketAddr),
    /// More than one error.
    #[error("{} errors:\n- {list}", .0.len(), list = list(.0))]
    Several(Vec<Error>),
}

impl Error {
    /// Combines `errors` into one error. Returns `Ok` if there are none.
    pub(crate) fn all(errors: Vec<Self>) -> Result<(), Self> {
        let each = |error| match error {
            Self::Several(errors) => errors,
            error => vec![error],
        };
        let mut errors: Vec<_> = errors.into_iter().flat_map(each).collect();
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Self::Several(errors)),
        }
    }
}

impl From<CertificateError> for Error {
    fn from(error: CertificateError) -> Self {
        let mut errors: Vec<_> = error.each().into_iter().map(Self::Certificate).collect();
        if errors.len() == 1 { errors.remove(0) } else { Self::Several(errors) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn list(errors: &[Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n- ")
}

fn bind_hint(error: &BindError) -> &'static str {
    match error {
        BindError::Address { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => {
                "; stop the program that uses the port, or choose another port, or 0 for any free port"
            }
            io::ErrorKind::PermissionDenied => {
                "; use port 1024 or higher, or grant the program CAP_NET_BIND_SERVICE"
            }
            io::ErrorKind::AddrNotAvailable => {
                "; use an address of this machine, or [::] for all addresses"
            }
            _ => "",
        },
        BindError::Congestion(CongestionError::Missing(_)) => {
            "; load its kernel module (modprobe tcp_bbr), or omit the setting"
        }
        BindError::Congestion(CongestionError::Forbidden(_)) => {
            "; add it to the sysctl net.ipv4.tcp_allowed_congestion_control, or omit the setting"
        }
        BindError::Congestion(_) => "; omit the congestion controller setting",
    }
}

fn certificate_hint(error: &CertificateError) -> String {
    let hint = match error {
        CertificateError::File { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            "; make the file readable for this user"
        }
        CertificateError::File { .. } => "; check the path",
        CertificateError::Malformed { .. } => {
            "; pass the chain first and the key second, both in PEM form"
        }
        CertificateError::Version { .. } | CertificateError::Order { .. } => {
            return format!("; {}", error.hint("pass", "the chain and its key"));
        }
        CertificateError::Encrypted { .. } => {
            "; write an unencrypted copy (openssl pkey -in KEY -out PLAIN_KEY)"
        }
        CertificateError::UnsupportedKey { .. } => {
            return format!("; use one of {}, with its certificate", CertificateError::KEYS);
        }
        CertificateError::Unusable { .. } => "; use the key that the certificate was issued for",
        CertificateError::Store { .. } | CertificateError::Generation(_) => {
            "; provide a certificate with Server::certificate_files"
        }
        CertificateError::Both(_) => "",
    };
    hint.to_owned()
}
