//! Memory of the engine, measured with an allocator that other tests must not use.

// Marked as tests so that lints treat their helpers as test code.
#[cfg(test)]
mod abandoned;
#[cfg(test)]
mod idle;
#[cfg(test)]
#[expect(dead_code, reason = "the other tests use the rest of it")]
#[path = "../engine/support.rs"]
mod support;
#[cfg(test)]
mod waiting;
#[cfg(test)]
mod websockets;
