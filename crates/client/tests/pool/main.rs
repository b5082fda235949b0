//! Pools on workers, in virtual time.

// Marked as tests so that lints treat the helpers as test code.
#[cfg(test)]
mod addresses;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod repeats;
#[cfg(test)]
mod support;
#[cfg(test)]
mod uploads;
