//! The `pronghorn` program, with the layers that come with it.

#![deny(unsafe_code)]

use std::process::ExitCode;

use pronghorn_cli::layers::Registry;

/// Allocator. A request causes some tens of small allocations and a few of kilobytes, for which the
/// C library merges and splits memory that has left the caches.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns free memory to the system. The allocator does so only while memory is allocated, so an
/// idle server has to trigger it.
#[expect(unsafe_code, reason = "the crate offers it only together with the rest of the library")]
fn give_memory_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: the library may be called so at any time, from any thread.
    unsafe { mi_collect(true) };
}

fn main() -> ExitCode {
    pronghorn_engine::set_memory_release_hook(give_memory_back);
    pronghorn_cli::main(&Registry::standard())
}
