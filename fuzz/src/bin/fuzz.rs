//! The fuzzer: runs libFuzzer on the target in `PRONGHORN_FUZZ_TARGET`.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use pronghorn_fuzz::{Target, target};

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("PRONGHORN_FUZZ_TARGET").unwrap_or_default();
        target(&name).unwrap_or_else(|| panic!("invalid PRONGHORN_FUZZ_TARGET: no target {name:?}"))
    });
    target(data);
});
