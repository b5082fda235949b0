//! An axum application on `pronghorn-server` over HTTP/1.1, 2 and 3, on one worker, with the
//! defaults of the API for Rust applications.

use bench_peers::{Failure, arguments_of, router};
use pronghorn_server::{Limits, Server};

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> Result<(), Failure> {
    let (address, certificate, key, files, more) = arguments_of()?;
    let mut limits = Limits::default();
    for limit in more {
        let (name, value) = limit.split_once('=').ok_or("invalid limit: use NAME=VALUE")?;
        limits = limits.with_named(name, value)?;
    }
    let server =
        Server::new().listen(address).certificate_files(certificate, key).limits(limits).workers(1);
    let running = server.start(router(files))?;
    eprintln!("listening on https://{address} (h1, h2, h3)");
    Ok(running.finished().await?)
}
