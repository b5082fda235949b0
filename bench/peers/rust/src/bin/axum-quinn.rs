//! An axum application on the crates quinn and h3 over HTTP/3, connected by h3-axum, on one thread.

use axum::Router;
use bench_peers::{Failure, arguments, quic, router};
use bytes::Bytes;
use h3::server::Connection;

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> Result<(), Failure> {
    let arguments = arguments(&[b"h3"])?;
    let app = router(arguments.files);
    let endpoint = quic(arguments.tls, arguments.address)?;
    eprintln!("listening on https://{} (h3)", endpoint.local_addr()?);
    while let Some(incoming) = endpoint.accept().await {
        let app = app.clone();
        tokio::spawn(async move {
            if let Ok(connection) = incoming.await {
                // A connection ends with an error however its client closes it.
                let _ = serve_connection(connection, app).await;
            }
        });
    }
    Ok(())
}

async fn serve_connection(connection: quinn::Connection, app: Router) -> Result<(), Failure> {
    let connection = Connection::<_, Bytes>::new(h3_quinn::Connection::new(connection)).await?;
    Ok(h3_axum::serve_h3_connection_with_axum(app, connection).await?)
}
