//! The `pronghorn` program, with the layers that come with it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use pronghorn_cli::layers::Registry;

/// A request costs some tens of small allocations, and a few of kilobytes, for which the C library joins and cuts memory that has left the
/// caches.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pronghorn_cli::main(&Registry::standard())
}
