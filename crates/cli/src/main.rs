//! The `pronghorn` program, with the layers that come with it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use pronghorn_cli::layers::Registry;

fn main() -> ExitCode {
    pronghorn_cli::main(&Registry::standard())
}
