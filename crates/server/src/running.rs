//! A running server and its handle.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::{Control, Identity, Qlog, Workers};

use crate::failure::Failures;
use crate::setup::identity_from_files;
use crate::{Error, Stats};

/// Maximum time that a server waits for the threads of its orders at its end.
#[cfg(feature = "acme")]
const CLIENT_THREADS_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) type Signal = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An address that a server listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address. If port 0 was requested, this has the port that the system chose.
    pub address: SocketAddr,
    /// Whether the address uses TLS, and therefore HTTP/2 and HTTP/3.
    pub secure: bool,
}

/// Addresses and shared state of a started server.
pub(crate) struct Started {
    pub(crate) addresses: Vec<LocalAddress>,
    pub(crate) spki_sha256: Option<String>,
    pub(crate) failures: Arc<Failures>,
    #[cfg(feature = "acme")]
    pub(crate) orders: Option<pronghorn_acme::Orders>,
}

/// A running server. Dropping it ends the server without waiting for requests in progress.
#[must_use = "a server that is dropped ends"]
pub struct Running {
    workers: Option<Workers>,
    control: Control,
    addresses: Vec<LocalAddress>,
    spki_sha256: Option<String>,
    failures: Arc<Failures>,
    grace: Duration,
    signal: Option<Signal>,
    /// Dropping the last reference waits for the files to be written, so a worker must not hold it.
    _qlog: Option<Qlog>,
    /// Certificates are renewed as long as this exists.
    #[cfg(feature = "acme")]
    orders: Option<pronghorn_acme::Orders>,
}

impl Running {
    pub(crate) fn new(
        workers: Workers,
        qlog: Option<Qlog>,
        started: Started,
        grace: Duration,
        signal: Option<Signal>,
    ) -> Self {
        let control = workers.control().clone();
        let Started {
            addresses,
            spki_sha256,
            failures,
            #[cfg(feature = "acme")]
            orders,
        } = started;
        Self {
            workers: Some(workers),
            control,
            addresses,
            spki_sha256,
            failures,
            grace,
            signal,
            _qlog: qlog,
            #[cfg(feature = "acme")]
            orders,
        }
    }

    /// Returns the addresses that the server listens on, in the order in which they were given.
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

    /// Returns the SHA-256 of the certificate's public key, in base64, for the certificate that the
    /// server was started with.
    ///
    /// Chromium accepts a self-signed certificate if it is started with this value in
    /// `--ignore-certificate-errors-spki-list`. `None` without TLS, with
    /// [`Server::identity`](crate::Server::identity), and with ordered certificates.
    pub fn spki_sha256(&self) -> Option<&str> {
        self.spki_sha256.as_deref()
    }

    /// Returns a handle to change certificates, read counters and shut down the server, from any
    /// thread.
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
        Handle {
            control: self.control.clone(),
            failures: self.failures.clone(),
            #[cfg(feature = "acme")]
            is_ordered: self.orders.is_some(),
        }
    }

    /// Waits until the server ends, through the signal of
    /// [`Server::with_graceful_shutdown`](crate::Server::with_graceful_shutdown),
    /// [`Handle::shut_down`] or a failure. The signal is polled only by this future.
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
    /// Returns the error of a worker that failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the server without waiting for requests in progress.
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
        if let Some(workers) = self.workers.take() {
            // The threads have finished their work and are about to return.
            workers.join().map_err(Error::Worker)?;
        }
        #[cfg(feature = "acme")]
        if self.orders.take().is_some() {
            // An order that was running has left its client behind.
            pronghorn_client::wait_for_threads(CLIENT_THREADS_TIMEOUT);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.workers.is_some() {
            self.control.shut_down(Duration::ZERO);
        }
    }
}

/// Controls a running server, from any thread. Cheap to clone.
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
    /// Whether the server orders its certificates.
    #[cfg(feature = "acme")]
    is_ordered: bool,
}

impl Handle {
    /// Replaces the certificate with the one in these files. New connections use it; existing
    /// connections continue unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be read or do not match, or the server orders its
    /// certificates. The server then keeps its current certificate.
    pub fn set_certificate_files(
        &self,
        chain: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<(), Error> {
        self.check_replaceable()?;
        self.set_identity(identity_from_files(chain.as_ref(), key.as_ref())?)
    }

    /// Replaces the certificate. New connections use it; existing connections continue unchanged.
    /// TLS sessions of the previous certificate are not resumed.
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
    /// Returns an error if the identity cannot be used for QUIC, or the server orders its
    /// certificates. The server then keeps its current certificate.
    pub fn set_identity(&self, identity: Identity) -> Result<(), Error> {
        self.check_replaceable()?;
        Ok(self.control.set_identity(identity)?)
    }

    /// A server that orders its certificates would go on, for certificates that no client sees.
    #[cfg_attr(
        not(feature = "acme"),
        expect(
            clippy::unused_self,
            clippy::unnecessary_wraps,
            reason = "only ordered certificates cannot be replaced"
        )
    )]
    fn check_replaceable(&self) -> Result<(), Error> {
        #[cfg(feature = "acme")]
        if self.is_ordered {
            return Err(Error::CertificateOrdered);
        }
        Ok(())
    }

    /// Shuts down the server. Clients are notified (GOAWAY, `connection: close`), and requests in
    /// progress may finish within `grace`; the rest are dropped.
    ///
    /// ```
    /// # fn end(handle: &pronghorn_server::Handle) {
    /// handle.shut_down(std::time::Duration::from_secs(30));
    /// # }
    /// ```
    pub fn shut_down(&self, grace: Duration) {
        self.control.shut_down(grace);
    }

    /// Returns the current counters.
    pub fn stats(&self) -> Stats {
        Stats::sum(
            self.control.stats().flat_map(|stats| stats.values()).chain(self.failures.counts()),
        )
    }
}
