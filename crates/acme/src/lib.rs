//! Certificates over ACME (RFC 8555): ordered, stored on disk, and renewed by a separate thread.
//!
//! [`CertificateRequests`] names the hosts and the settings, [`Orders`] keeps their certificates
//! current. A server shows [`ManagedCertificate::key`] to clients, and answers the authority from
//! [`Challenges`].

#![forbid(unsafe_code)]

mod authority;
mod challenges;
mod check;
mod managed_certificate;
mod order;
mod requests;
mod schedule;
mod store;
mod worker;

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::mpsc::UnboundedSender;

pub use challenges::Challenges;
pub use check::{Invalid, LETS_ENCRYPT, check_directory, check_email, check_host};
pub use managed_certificate::{ManagedCertificate, OrderState, RetryError};
use requests::LogLine;
pub use requests::{CertificateRequests, Challenge, ExternalAccount, Settings};
pub use schedule::Lifetime;
pub use store::lifetime;

/// The ordering thread, once it has been started.
#[derive(Default)]
pub struct Orders {
    challenges: Arc<Challenges>,
    started: Mutex<Option<Started>>,
}

struct Started {
    log: Arc<LogLine>,
    /// Channel to the thread, which is started when the first name needs a certificate.
    requests: Option<UnboundedSender<CertificateRequests>>,
    thread: Option<JoinHandle<()>>,
}

impl Orders {
    /// Returns the responses to challenges, for the server's listeners.
    pub fn challenges(&self) -> &Arc<Challenges> {
        &self.challenges
    }

    /// Starts ordering the certificates in `wanted`. Lines for the operator go to `log`, which runs
    /// on the ordering thread and must not block.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started or the folder for certificates cannot be
    /// written.
    pub fn start(
        &self,
        wanted: Option<&CertificateRequests>,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        // An order must not end with a panic of its log.
        let log = move |line: &str| drop(catch_unwind(AssertUnwindSafe(|| log(line))));
        let started = started.insert(Started { log: Arc::new(log), requests: None, thread: None });
        self.request(started, wanted)
    }

    /// Changes the set of names. Running orders for names that remain continue.
    pub fn change(&self, wanted: Option<&CertificateRequests>) {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(started) = started.as_mut() else { return };
        if let Err(error) = self.request(started, wanted) {
            (started.log)(&format!("error: cannot order certificates: {error}"));
        }
    }

    fn request(
        &self,
        started: &mut Started,
        wanted: Option<&CertificateRequests>,
    ) -> io::Result<()> {
        if let Some(wanted) = wanted
            && let Err(error) = wanted.store.make()
        {
            // With all certificates present, a server can run on a full disk.
            if wanted.slots.iter().any(|slot| slot.lifetime().is_none()) {
                return Err(error);
            }
            (started.log)(&format!("warning: cannot renew certificates: {error}"));
        }
        let requests = match (&started.requests, wanted) {
            (Some(requests), _) => requests,
            (None, None) => return Ok(()),
            (None, Some(_)) => {
                let (requests, thread) =
                    worker::start(self.challenges.clone(), started.log.clone())?;
                started.thread = Some(thread);
                started.requests.insert(requests)
            }
        };
        let nothing = || CertificateRequests {
            settings: Arc::default(),
            store: Arc::default(),
            slots: Vec::new(),
        };
        requests
            .send(wanted.cloned().unwrap_or_else(nothing))
            .map_err(|_| io::Error::other("the ordering thread has ended"))
    }
}

impl Drop for Orders {
    /// Ends running orders, and waits for the thread: the cryptography library aborts a process
    /// that exits while another thread needs random numbers.
    fn drop(&mut self) {
        let started = self.started.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Started { requests, thread: Some(thread), .. }) = started else { return };
        drop(requests);
        if thread.thread().id() != std::thread::current().id() {
            // A panic was reported when it happened.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("challenges", &self.challenges).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn panic_of_the_log_ends_no_order() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            directory: "https://127.0.0.1:9/dir".to_owned(),
            terms_agreed: true,
            ..Settings::default()
        };
        let mut requests = CertificateRequests::new(settings, folder.path());
        let certificate = requests.certificate("a.example", None).unwrap();
        let orders = Orders::default();
        let (lines, said) = std::sync::mpsc::channel();
        let log = move |line: &str| {
            lines.send(line.to_owned()).unwrap();
            panic!("{line}");
        };
        orders.start(Some(&requests), log).unwrap();
        let next = || said.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(next().starts_with("error: no certificate for a.example"));
        // The state follows the line.
        while certificate.retry().is_err() {
            std::thread::yield_now();
        }
        assert!(next().starts_with("error: no certificate for a.example"));
    }

    #[test]
    fn names_that_are_no_hosts_become_no_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut requests = CertificateRequests::new(Settings::default(), folder.path());
        for host in ["../../x", "a/b.example", ""] {
            let error = requests.certificate(host, None).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{host}");
        }
    }
}
