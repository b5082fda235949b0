//! Fuzz targets. Each takes any bytes, and panics when they make a parser do what it must not: panic, hold too much, say different
//! things of the same bytes cut in different places, or change what an encoder of ours has sent.
//!
//! `scripts/fuzz` runs them under libFuzzer; a test of this crate replays what it found and `corpus/` keeps. Start with [`TARGETS`].

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

/// All targets, by the names of their folders in `corpus/`.
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

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}
