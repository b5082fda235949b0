//! Services on the server, over the three versions of HTTP, asked by the client in the same process.

// Marked as tests so that lints take their helpers for what they are.
#[cfg(test)]
mod client;
#[cfg(test)]
mod ending;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod streaming;
#[cfg(test)]
mod support;
#[cfg(test)]
mod upgrades;
#[cfg(test)]
mod webtransport;
