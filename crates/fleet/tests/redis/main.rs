//! Sessions, secrets and settings in real Redis servers.
//!
//! The tests need `redis-server`, `redis-sentinel` and `redis-cli`, which `scripts/setup` installs.
//! Without them they are skipped, except in continuous integration (variable `CI`).

// Marked as tests so that lints treat the helpers as test code.
#[cfg(test)]
mod admin;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod failover;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod login;
#[cfg(test)]
mod once;
#[cfg(test)]
mod sealed;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod server;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod store;
