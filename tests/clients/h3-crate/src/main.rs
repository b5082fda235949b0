//! An HTTP/3 client on the crates h3 and quinn, for the end-to-end tests.
//!
//! `h3-crate-client --ca ca.pem [--count N] [--data FILE] [--rebind] URL` sends the same request N times at once on one connection and
//! prints a line of JSON with the responses. With `--rebind` it sends one request first, and the others from another port.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use clap::Parser;
use http::{Method, Request, Uri};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

type Failure = Box<dyn Error + Send + Sync>;
type Requests = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

#[derive(Parser)]
struct Arguments {
    /// PEM file with the certificates to trust
    #[arg(long)]
    ca: PathBuf,
    /// Requests at once
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// File to send as content
    #[arg(long)]
    data: Option<PathBuf>,
    /// Move to another port after a first request
    #[arg(long)]
    rebind: bool,
    url: Uri,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let host = arguments.url.host().ok_or("the URL names no host")?;
    let remote = SocketAddr::new(host.parse()?, arguments.url.port_u16().unwrap_or(443));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&arguments.ca)? {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)));
    let connection = endpoint.connect(remote, host)?.await?;
    let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;

    let content = arguments.data.as_ref().map(std::fs::read).transpose()?.map(Bytes::from);
    let driving = tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
    let mut responses = Vec::new();
    if arguments.rebind {
        responses.push(exchange(requests.clone(), arguments.url.clone(), content.clone()).await?);
        endpoint.rebind(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?)?;
    }
    let running: Vec<_> =
        (0..arguments.count).map(|_| tokio::spawn(exchange(requests.clone(), arguments.url.clone(), content.clone()))).collect();
    for each in running {
        responses.push(each.await??);
    }
    println!("{}", json!({ "responses": responses }));
    // The connection closes when nobody can send on it any more.
    drop(requests);
    driving.await?;
    endpoint.wait_idle().await;
    Ok(())
}

async fn exchange(mut requests: Requests, url: Uri, content: Option<Bytes>) -> Result<Value, Failure> {
    let method = if content.is_some() { Method::POST } else { Method::GET };
    let mut stream = requests.send_request(Request::builder().method(method).uri(url).body(())?).await?;
    if let Some(content) = content {
        stream.send_data(content).await?;
    }
    stream.finish().await?;
    let response = stream.recv_response().await?;
    let (mut size, mut hash) = (0, Sha256::new());
    while let Some(mut data) = stream.recv_data().await? {
        let data = data.copy_to_bytes(data.remaining());
        size += data.len();
        hash.update(&data);
    }
    let digest = hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let trailers = stream.recv_trailers().await?.map_or(0, |trailers| trailers.len());
    Ok(json!({ "status": response.status().as_u16(), "size": size, "sha256": digest, "trailers": trailers }))
}
