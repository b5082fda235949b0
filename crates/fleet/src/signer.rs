//! Private keys on other machines and in security modules: both sides of the Keyless SSL protocol,
//! PKCS#11, and keys that are tried in order.
//!
//! A [`KeyChain`] is the signing key of a certificate. Its sources are tried in order at each
//! signature: a [`RemoteKey`], which a [`SignerClient`] reaches on other machines, a [`Pkcs11Key`]
//! or a [`LocalKey`]. [`Server`] is the other end: it signs for clients that it knows by their
//! certificates. [`protocol`] has the messages, without any I/O.
//!
//! Sources block the calling thread, so they are called from threads that may wait
//! ([`KeyChain::may_block`]). None of them blocks for longer than its timeout.
//!
//! When no source signs, the handshake fails with [`SigningFailed`](pronghorn_engine::SigningFailed),
//! which the engine turns into the alert `internal_error`.

mod backoff;
mod client;
mod error;
mod key_chain;
mod local_key;
mod pipe;
#[cfg(feature = "pkcs11")]
mod pkcs11;
#[cfg(not(feature = "pkcs11"))]
#[path = "signer/pkcs11_absent.rs"]
mod pkcs11;
pub mod protocol;
mod public_key;
mod remote_key;
mod rustls_key;
mod scheme;
pub mod server;
mod source;
mod tls;

pub use client::{AddressState, Phase, SignerClient, SignerConfig};
pub use error::SignError;
pub use key_chain::{KeyChain, KeyEvent, SourceState};
pub use local_key::{LocalKey, LocalKeyError};
pub use pkcs11::{Pkcs11Error, Pkcs11Key, Pkcs11Uri};
pub use protocol::Ski;
pub use public_key::{PublicKey, PublicKeyError};
pub use remote_key::RemoteKey;
pub use scheme::{Hash, KeyKind, Scheme};
pub use server::Server;
pub use source::KeySource;
pub use tls::{TlsError, client_tls, server_tls};
