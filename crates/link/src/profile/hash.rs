//! Hashes of profiles and traces.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

pub(super) fn sha256(meaning: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(meaning) {
        write!(text, "{byte:02x}").expect("invariant: a String takes any text");
    }
    text
}
