//! A server that runs.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::{Control, Identity, Qlog, Workers};

use crate::failure::Failures;
use crate::parts::identity_from_files;
use crate::{Error, Stats};

pub(crate) type Signal = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address, with the port that the system chose where 0 was asked for.
    pub address: SocketAddr,
    /// Whether TLS, and with it HTTP/2 and 3, is spoken there.
    pub secure: bool,
}

/// Where a server is, and by what it is known.
pub(crate) struct At {
    pub(crate) addresses: Vec<LocalAddress>,
    pub(crate) spki_sha256: Option<String>,
    pub(crate) failures: Arc<Failures>,
}

/// A server that runs. Dropped, it ends, and what runs is not waited for.
#[must_use = "a server that is dropped ends"]
pub struct Running {
    workers: Option<Workers>,
    control: Control,
    addresses: Vec<LocalAddress>,
    spki_sha256: Option<String>,
    failures: Arc<Failures>,
    grace: Duration,
    signal: Option<Signal>,
    /// Its last user waits for the files, so it must not be a worker.
    _qlog: Option<Qlog>,
}

impl Running {
    pub(crate) fn new(workers: Workers, qlog: Option<Qlog>, at: At, grace: Duration, signal: Option<Signal>) -> Self {
        let control = workers.control().clone();
        let At { addresses, spki_sha256, failures } = at;
        Self { workers: Some(workers), control, addresses, spki_sha256, failures, grace, signal, _qlog: qlog }
    }

    /// Where it listens, in the order in which the addresses were given.
    ///
    /// ```
    /// # fn tell(running: &pronghorn_server::Running) {
    /// for local in running.local_addresses() {
    ///     let scheme = if local.secure { "https" } else { "http" };
    ///     println!("listening on {scheme}://{}", local.address);
    /// }
    /// # }
    /// ```
    pub fn local_addresses(&self) -> &[LocalAddress] {
        &self.addresses
    }

    /// SHA-256 of the public key of the certificate that it was started with, in base64: Chromium takes a self-signed certificate if
    /// it is started with `--ignore-certificate-errors-spki-list` and this. `None` without TLS, and with
    /// [`Server::identity`](crate::Server::identity).
    pub fn spki_sha256(&self) -> Option<&str> {
        self.spki_sha256.as_deref()
    }

    /// To change certificates, read counters and end the server, from any thread.
    ///
    /// ```
    /// # fn keep(running: &pronghorn_server::Running) {
    /// let handle = running.handle();
    /// std::thread::spawn(move || {
    ///     loop {
    ///         std::thread::sleep(std::time::Duration::from_secs(10));
    ///         println!("{} connections", handle.stats().open_connections());
    ///     }
    /// });
    /// # }
    /// ```
    pub fn handle(&self) -> Handle {
        Handle { control: self.control.clone(), failures: self.failures.clone() }
    }

    /// Waits for the server's end: the signal of [`Server::with_graceful_shutdown`](crate::Server::with_graceful_shutdown), which is
    /// listened for here, [`Handle::shut_down`], or a failure.
    ///
    /// ```
    /// use pronghorn_server::{Error, Running};
    ///
    /// async fn wait(running: Running) -> Result<(), Error> {
    ///     running.finished().await?;
    ///     println!("all requests are answered");
    ///     Ok(())
    /// }
    /// # let _ = wait;
    /// ```
    ///
    /// # Errors
    ///
    /// What a worker failed with.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the server; what runs is not waited for.
    pub async fn finished(mut self) -> Result<(), Error> {
        if let Some(workers) = &self.workers {
            let mut finished = pin!(workers.finished());
            let (signal, control, grace) = (&mut self.signal, &self.control, self.grace);
            poll_fn(|cx| {
                if let Some(waiting) = signal
                    && waiting.as_mut().poll(cx).is_ready()
                {
                    *signal = None;
                    control.shut_down(grace);
                }
                finished.as_mut().poll(cx)
            })
            .await;
        }
        match self.workers.take() {
            // The threads have done all but return.
            Some(workers) => workers.join().map_err(Error::Worker),
            None => Ok(()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.workers.is_some() {
            self.control.shut_down(Duration::ZERO);
        }
    }
}

/// Speaks to a running server, from any thread. Cheap to clone.
///
/// ```
/// use pronghorn_server::Handle;
///
/// /// Called when the certificate was renewed.
/// fn renewed(handle: &Handle) -> Result<(), pronghorn_server::Error> {
///     handle.set_certificate_files("/etc/ssl/site/fullchain.pem", "/etc/ssl/site/key.pem")
/// }
/// # let _ = renewed;
/// ```
#[derive(Clone)]
pub struct Handle {
    control: Control,
    failures: Arc<Failures>,
}

impl Handle {
    /// Connections that begin from now on get the certificate in these files; those there are go on.
    ///
    /// # Errors
    ///
    /// When the files cannot be read or do not fit. The server goes on with the certificate that it has.
    pub fn set_certificate_files(&self, chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<(), Error> {
        self.set_identity(identity_from_files(chain.as_ref(), key.as_ref())?)
    }

    /// Connections that begin from now on get this certificate; those there are go on. Sessions made with the one before are not
    /// resumed.
    ///
    /// ```
    /// use pronghorn_server::{Handle, Identity};
    /// use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    ///
    /// fn renewed(handle: &Handle, chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<(), pronghorn_server::Error> {
    ///     handle.set_identity(Identity::new(chain, key)?)
    /// }
    /// # let _ = renewed;
    /// ```
    ///
    /// # Errors
    ///
    /// When it cannot be used for QUIC. The server goes on with the certificate that it has.
    pub fn set_identity(&self, identity: Identity) -> Result<(), Error> {
        Ok(self.control.set_identity(identity)?)
    }

    /// Ends the server: clients are told (GOAWAY, `connection: close`), what runs is finished within `grace`, what is left then is
    /// dropped.
    ///
    /// ```
    /// # fn end(handle: &pronghorn_server::Handle) {
    /// handle.shut_down(std::time::Duration::from_secs(30));
    /// # }
    /// ```
    pub fn shut_down(&self, grace: Duration) {
        self.control.shut_down(grace);
    }

    /// The counters of now.
    pub fn stats(&self) -> Stats {
        Stats::sum(self.control.stats().flat_map(|stats| stats.values()).chain(self.failures.counts()))
    }
}
