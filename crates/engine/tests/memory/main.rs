//! What the engine holds, counted by an allocator that no other test should have.

// Marked as tests so that lints take their helpers for what they are.
#[cfg(test)]
mod given_up;
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
