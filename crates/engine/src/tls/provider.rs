//! The cryptography of all TLS of this crate.

use std::sync::Arc;

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Returns the provider for all TLS of this crate: aws-lc-rs, with post-quantum key exchange
/// preferred. AES-128-GCM is preferred, as in browsers: with its shorter hash a handshake costs
/// less than with AES-256-GCM. A server uses what its client prefers.
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider
        .cipher_suites
        .sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}
