//! The client and the server of the Keyless protocol with each other, and with peers that fail.

mod failures;
mod gokeyless;
mod handshakes;
mod server;
#[cfg(feature = "pkcs11")]
mod softhsm;
mod support;
