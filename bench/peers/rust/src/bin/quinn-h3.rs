//! HTTP/3 with the crates quinn, h3 and h3-quinn, on one thread.

use std::sync::Arc;

use bench_peers::{Failure, Files, arguments, quic};
use bytes::Bytes;
use h3::server::{Connection, RequestResolver};

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> Result<(), Failure> {
    let arguments = arguments(&[b"h3"])?;
    let files = Arc::new(arguments.files);
    let endpoint = quic(arguments.tls, arguments.address)?;
    eprintln!("listening on https://{} (h3)", endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        let files = Arc::clone(&files);
        tokio::spawn(async move {
            if let Ok(connection) = incoming.await {
                // A connection ends with an error however its client closes it.
                let _ = serve_connection(connection, files).await;
            }
        });
    }
    Ok(())
}

async fn serve_connection(connection: quinn::Connection, files: Arc<Files>) -> Result<(), Failure> {
    let mut connection = Connection::<_, Bytes>::new(h3_quinn::Connection::new(connection)).await?;
    while let Some(request) = connection.accept().await? {
        let files = Arc::clone(&files);
        tokio::spawn(async move {
            let _ = answer(request, files).await;
        });
    }
    Ok(())
}

async fn answer(
    request: RequestResolver<h3_quinn::Connection, Bytes>,
    files: Arc<Files>,
) -> Result<(), Failure> {
    let (request, mut stream) = request.resolve_request().await?;
    // Read the request to its end: dropping the stream early would send STOP_SENDING, which some
    // clients count as a failure.
    while stream.recv_data().await?.is_some() {}
    let (head, body) = files.answer(request.uri().path());
    stream.send_response(head).await?;
    stream.send_data(body).await?;
    stream.finish().await?;
    Ok(())
}
