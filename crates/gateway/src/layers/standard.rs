//! The standard layers.

use super::addresses::Addresses;
use super::basic_auth::BasicAuth;
use super::body_limit::BodyLimit;
use super::compress::Compress;
use super::concurrency::ConcurrencyLimit;
use super::forward_auth::ForwardAuth;
use super::rate_limit::RateLimit;
use super::timeout::Timeout;
use super::{Registry, addresses, body_limit, cors, rate_limit, timeout};

impl Registry {
    /// Returns the layers that come with Pronghorn; docs/gateway/layers.md describes them.
    pub fn standard() -> Self {
        Self::empty()
            .with("allow", |options: addresses::Options, _| Addresses::new(&options, true))
            .with("basic-auth", |options, context| BasicAuth::new(&options, context))
            .with("body-limit", |options: body_limit::Options, _| Ok(BodyLimit::new(&options)))
            .with("compress", |options, _| Compress::new(options))
            .with("concurrency-limit", |options, _| ConcurrencyLimit::new(options))
            .with_tower("cors", cors::layer)
            .with("deny", |options: addresses::Options, _| Addresses::new(&options, false))
            .with("forward-auth", ForwardAuth::new)
            .with("rate-limit", |options: rate_limit::Options, _| RateLimit::new(&options))
            .with("timeout", |options: timeout::Options, _| Timeout::new(&options))
    }
}
