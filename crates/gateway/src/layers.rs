//! Middleware of the gateway: tower services around the services of routes, registered by name.
//!
//! A configuration names the layers of its sites and routes, and a [`Registry`] creates them.
//! [`Registry::standard`] has the layers that come with Pronghorn. A program adds its own with
//! [`Registry::with_tower`], for layers of tower and tower-http, or with [`Registry::with`], for
//! layers that need timers or connections of the worker. docs/gateway/layers.md has an example.

mod addresses;
mod around;
mod basic_auth;
mod body_limit;
mod compress;
mod concurrency;
mod context;
mod cors;
mod forward_auth;
mod rate_limit;
mod registry;
mod service;
mod standard;
mod timeout;

pub use around::Around;
pub use context::{Client, OriginalTarget, WorkerContext};
pub(crate) use context::{TOO_EARLY, is_unproved};
pub use registry::{LayerContext, Registry};
pub use service::{Layer, LocalFuture, LocalService, Request, Response};
pub(crate) use service::{from_engine, too_early};

pub(crate) use crate::fields::identity_fields::remove_in_all_spellings;
