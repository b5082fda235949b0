//! Why a server does not serve, and what helps.

use std::fmt;
use std::io;
use std::path::PathBuf;

use pronghorn_certificates::CertificateError;
use pronghorn_engine::{BindError, CongestionError};

/// Why a server cannot serve. The message says what to do about it. `Debug` shows the same message, since that is what `main` prints of an error that it
/// returns.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No address was given.
    #[error("there is no address to listen on; name one with Server::listen(\"[::]:8443\")")]
    NoAddress,
    /// An address cannot be understood, or its name not be looked up.
    #[error("cannot listen on {address}: {source}; write it as HOST:PORT with an address of this machine, such as [::]:8443")]
    Address {
        /// What was given.
        address: String,
        /// What was wrong with it.
        #[source]
        source: io::Error,
    },
    /// An address is taken, not this machine's, or not allowed.
    #[error("{0}{hint}", hint = bind_hint(.0))]
    Bind(#[from] BindError),
    /// A secure address was given and no certificate.
    #[error(
        "there is no certificate for the secure listener; give one with Server::certificate_files, or use Server::development_certificate"
    )]
    NoCertificate,
    /// The certificate or its key cannot be used.
    #[error("{0}{hint}", hint = certificate_hint(.0))]
    Certificate(#[source] CertificateError),
    /// The identity cannot be used for TLS 1.3, which QUIC needs.
    #[error("the certificate cannot be used for QUIC: {0}; give a key of ECDSA P-256, RSA or Ed25519")]
    Identity(#[from] rustls::Error),
    /// There is no folder in which the certificate for development could be kept.
    #[error(
        "there is no home folder to keep a certificate for development in; set HOME, or give a certificate with Server::certificate_files"
    )]
    NoHome,
    /// The folder for qlog files cannot be used.
    #[error("cannot write qlog files to {}: {source}; give a folder that this user may write", folder.display())]
    Qlog {
        /// Which folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system gives no more threads or descriptors.
    #[error("cannot start: {0}; raise the limits on open files (ulimit -n) and on processes (ulimit -u)")]
    Start(#[source] io::Error),
    /// A worker failed while it served.
    #[error("a worker failed: {0}")]
    Worker(#[source] io::Error),
    /// Requests in clear text are to be redirected, and no address speaks TLS.
    #[error("there is no address with TLS to redirect to; name one with Server::listen(\"[::]:443\")")]
    NowhereToRedirect,
    /// More than one of these.
    #[error("{} things are wrong:\n- {list}", .0.len(), list = list(.0))]
    Several(Vec<Error>),
}

impl Error {
    /// All that `errors` say; nothing if there are none.
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
            io::ErrorKind::AddrInUse => "; stop what uses the port, or choose another, or port 0 for any",
            io::ErrorKind::PermissionDenied => "; use a port of 1024 or more, or give the program CAP_NET_BIND_SERVICE",
            io::ErrorKind::AddrNotAvailable => "; give an address of this machine, or [::] for all of them",
            _ => "",
        },
        BindError::Congestion(CongestionError::Missing(_)) => {
            "; load the kernel's module for it (modprobe tcp_bbr), or leave the choice out"
        }
        BindError::Congestion(CongestionError::Forbidden(_)) => {
            "; add it to the sysctl net.ipv4.tcp_allowed_congestion_control, or leave the choice out"
        }
        BindError::Congestion(_) => "; leave the choice of a congestion controller out",
    }
}

fn certificate_hint(error: &CertificateError) -> String {
    let hint = match error {
        CertificateError::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => "; make it readable for this user",
        CertificateError::File { .. } => "; check the path",
        CertificateError::Malformed { .. } => "; give the chain first and its key second, both in PEM form",
        CertificateError::Encrypted { .. } => "; write a copy without one (openssl pkey -in KEY -out PLAIN_KEY)",
        CertificateError::UnsupportedKey { .. } => return format!("; give one of {}, and its certificate", CertificateError::KEYS),
        CertificateError::Unusable { .. } => "; give the key that the certificate was made for",
        CertificateError::Keeping { .. } | CertificateError::Generation(_) => "; give a certificate with Server::certificate_files",
        CertificateError::Both(_) => "",
    };
    hint.to_owned()
}
