//! What several servers share, so that a client may reach any of them: TLS sessions in Redis
//! ([`sessions`]), the secrets that protect them ([`secrets`]), and private keys on other machines
//! ([`signer`]).
//!
//! The crate never serves HTTP, and never blocks a worker: stores and signers are used from threads
//! of their own.

#![forbid(unsafe_code)]

pub mod secrets;
pub mod sessions;
pub mod signer;

mod redis;
