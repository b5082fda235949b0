//! HTTP/1.1 and HTTP/2 with hyper and rustls, on one thread.

use std::convert::Infallible;
use std::sync::Arc;

use bench_peers::{Failure, Files, arguments};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> Result<(), Failure> {
    let arguments = arguments(&[b"h2", b"http/1.1"])?;
    let files = Arc::new(arguments.files);
    let acceptor = TlsAcceptor::from(Arc::new(arguments.tls));
    let listener = TcpListener::bind(arguments.address).await?;
    eprintln!("listening on https://{} (h1, h2)", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, files) = (acceptor.clone(), Arc::clone(&files));
        tokio::spawn(async move {
            // A connection ends with an error however its client closes it.
            let _ = serve_connection(stream, acceptor, files).await;
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    files: Arc<Files>,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let service = service_fn(|request| {
        let answer = answer(&request, &files);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(256);
    builder.serve_connection(TokioIo::new(stream), service).await
}

fn answer(request: &Request<Incoming>, files: &Files) -> Response<Full<Bytes>> {
    let (head, body) = files.answer(request.uri().path());
    head.map(|()| Full::new(body))
}
