//! The `pronghorn` program, with the layers that come with it.

#![deny(unsafe_code)]

use std::process::ExitCode;

use pronghorn_cli::layers::Registry;

/// A request costs some tens of small allocations, and a few of kilobytes, for which the C library joins and cuts memory that has left the
/// caches.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator gives memory back while memory is asked for. A server that nobody asks anything has to say so.
#[expect(unsafe_code, reason = "the crate offers it only together with all else that the library has")]
fn give_memory_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: the library may be called so at any time, from any thread.
    unsafe { mi_collect(true) };
}

fn main() -> ExitCode {
    pronghorn_engine::set_memory_release(give_memory_back);
    pronghorn_cli::main(&Registry::standard())
}
