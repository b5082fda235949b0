//! The client and the server of the Keyless protocol with each other, and with peers that fail.

#[cfg(test)]
mod failures;
#[cfg(test)]
mod gokeyless;
#[cfg(test)]
mod handshakes;
#[cfg(test)]
mod server;
#[cfg(feature = "pkcs11")]
#[cfg(test)]
mod softhsm;
#[cfg(test)]
mod support;
