//! Fuzz targets. Each target accepts arbitrary bytes. It panics if a parser panics, buffers too
//! much or returns different results for the same bytes split differently, or if data changes
//! between this project's encoder and decoder.
//!
//! `scripts/fuzz` runs the targets under libFuzzer; a test of this crate replays the inputs kept in
//! `corpus/`. Start with [`TARGETS`].

#![forbid(unsafe_code)]

mod fastcgi;
mod huffman;
mod input;
mod message;
mod operations;
mod priority;
mod qpack_encoder;
mod qpack_pair;
mod qpack_streams;
mod sessions;
mod settings;
mod streams;
mod targets;
mod websocket;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets, with the names of their folders in `corpus/`.
pub const TARGETS: [(&str, Target); 13] = [
    ("fastcgi", fastcgi::run),
    ("huffman", huffman::run),
    ("message", message::run),
    ("operations", operations::run),
    ("priority", priority::run),
    ("qpack_encoder", qpack_encoder::run),
    ("qpack_pair", qpack_pair::run),
    ("qpack_streams", qpack_streams::run),
    ("sessions", sessions::run),
    ("settings", settings::run),
    ("streams", streams::run),
    ("targets", targets::run),
    ("websocket", websocket::run),
];

/// Returns the target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}
