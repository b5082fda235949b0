//! Sessions and secrets in real Redis servers.
//!
//! The tests need `redis-server`, `redis-sentinel` and `redis-cli`, which `scripts/setup` installs.
//! Without them they are skipped, except in continuous integration (variable `CI`).

mod admin;
mod cluster;
mod failover;
mod failures;
mod fake;
mod hostile;
mod login;
mod once;
mod sealed;
mod secrets;
mod server;
mod store;
