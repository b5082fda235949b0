//! Services on the server over the three HTTP versions, with the client in the same process.

// Marked as tests so that lints treat the helpers as test code.
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
