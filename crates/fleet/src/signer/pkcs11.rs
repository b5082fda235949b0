//! Keys in security modules, through PKCS#11.

mod der;
mod error;
mod module;
mod session;
mod uri;
mod worker;

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

pub use self::error::Pkcs11Error;
pub use self::uri::Pkcs11Uri;
use self::worker::{Job, Workers};
use super::error::SignError;
use super::public_key::PublicKey;
use super::scheme::Scheme;
use super::source::KeySource;

/// Time to load a module, log in and find a key.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// A private key in a security module. Threads of its own have the sessions, so a module that hangs
/// does not block the calling thread for longer than the timeout.
#[derive(Debug)]
pub struct Pkcs11Key {
    name: String,
    public: PublicKey,
    timeout: Duration,
    workers: Workers,
}

impl Pkcs11Key {
    /// Loads the module, logs in, finds the key and makes a test signature. `public`: the key of
    /// the certificate; if it is `None`, the token must have the public key too. `timeout`: maximum
    /// time of one signature.
    ///
    /// # Errors
    ///
    /// Returns an error if the key cannot be used.
    pub fn open(
        uri: &Pkcs11Uri,
        public: Option<PublicKey>,
        timeout: Duration,
    ) -> Result<Self, Pkcs11Error> {
        let (sender, opened) = sync_channel(1);
        let of_thread = uri.clone();
        std::thread::Builder::new()
            .name("pkcs11".to_owned())
            .spawn(move || {
                // The caller may have timed out.
                let _ = sender.send(session::check(&of_thread, public));
            })
            .map_err(|error| Pkcs11Error::Call(error.to_string()))?;
        let (public, session) =
            opened.recv_timeout(OPEN_TIMEOUT).map_err(|error| match error {
                RecvTimeoutError::Timeout => Pkcs11Error::TimedOut(OPEN_TIMEOUT),
                RecvTimeoutError::Disconnected => {
                    Pkcs11Error::Call("the thread of the module has ended".to_owned())
                }
            })??;
        let workers = Workers::new(uri.clone(), public.kind(), session);
        Ok(Self { name: uri.to_string(), public, timeout, workers })
    }
}

impl KeySource for Pkcs11Key {
    fn name(&self) -> &str {
        &self.name
    }

    fn may_block(&self) -> bool {
        true
    }

    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError> {
        if !self.public.kind().supports(scheme) {
            return Err(SignError::Unsupported(scheme));
        }
        let (reply, answer) = sync_channel(1);
        let deadline = Instant::now() + self.timeout;
        self.workers.push(Job { scheme, digest: digest.to_vec(), deadline, reply })?;
        let signature = answer.recv_timeout(self.timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => SignError::TimedOut(self.timeout),
            RecvTimeoutError::Disconnected => {
                SignError::Failed("the thread of the module has ended".to_owned())
            }
        })??;
        if !self.public.verifies(scheme, digest, &signature) {
            return Err(SignError::WrongSignature);
        }
        Ok(signature)
    }
}
