//! An axum application on hyper and rustls over HTTP/1.1 and HTTP/2, on one thread.

use std::sync::Arc;

use axum::Router;
use bench_peers::{Failure, arguments, router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> Result<(), Failure> {
    let arguments = arguments(&[b"h2", b"http/1.1"])?;
    let app = router(arguments.files);
    let acceptor = TlsAcceptor::from(Arc::new(arguments.tls));
    let listener = TcpListener::bind(arguments.address).await?;
    eprintln!("listening on https://{} (h1, h2)", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, app) = (acceptor.clone(), app.clone());
        tokio::spawn(async move {
            // A connection ends with an error however its client closes it.
            let _ = serve_connection(stream, acceptor, app).await;
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    app: Router,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(256).enable_connect_protocol();
    builder
        .serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(app))
        .await
}
