//! An HTTP/3 client on the crates h3 and quinn, for the end-to-end tests.
//!
//! `h3-crate-client --ca ca.pem [--count N] [--data FILE] [--rebind] [--update-keys] [--early-data]
//! URL`
//!
//! Sends the same request N times concurrently on one connection and prints a line of JSON with the
//! responses. `--rebind` sends one request first, and the others from another port. `--update-keys`
//! updates the keys when the first data of each response has arrived. `--early-data` sends one
//! request on an earlier connection, resumes its TLS session, and reports in `early_data` whether
//! the server accepted early data.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
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
use tokio::task::JoinHandle;

type Failure = Box<dyn Error + Send + Sync>;
type Requests = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

#[derive(Parser)]
struct Arguments {
    /// PEM file with the certificates to trust
    #[arg(long)]
    ca: PathBuf,
    /// Number of concurrent requests
    #[arg(long, default_value_t = 1)]
    count: usize,
    /// File to send as the request body
    #[arg(long)]
    data: Option<PathBuf>,
    /// Switch to another port after the first request
    #[arg(long)]
    rebind: bool,
    /// Update the keys during each response
    #[arg(long)]
    update_keys: bool,
    /// Resume the session of an earlier connection and send the request as early data
    #[arg(long)]
    early_data: bool,
    url: Uri,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let host = arguments.url.host().ok_or("the URL has no host")?;
    let address: IpAddr = host.trim_matches(['[', ']']).parse()?;
    let remote = SocketAddr::new(address, arguments.url.port_u16().unwrap_or(443));
    let any_port: SocketAddr = if address.is_ipv4() {
        (Ipv4Addr::LOCALHOST, 0).into()
    } else {
        (Ipv6Addr::LOCALHOST, 0).into()
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&arguments.ca)? {
        roots.add(certificate?)?;
    }
    let mut tls =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = arguments.early_data;
    let mut endpoint = quinn::Endpoint::client(any_port)?;
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(
        QuicClientConfig::try_from(tls)?,
    )));
    let request = Exchange {
        url: arguments.url.clone(),
        content: arguments.data.as_ref().map(std::fs::read).transpose()?.map(Bytes::from),
        update_keys: arguments.update_keys,
    };

    let mut responses = Vec::new();
    let mut early = None;
    if arguments.early_data {
        let connection = endpoint.connect(remote, &address.to_string())?.await?;
        let (requests, driving) = client(connection.clone()).await?;
        responses.push(request.clone().run(connection, requests).await?);
        driving.await?;
    }
    let connecting = endpoint.connect(remote, &address.to_string())?;
    let connection = if arguments.early_data {
        let (connection, accepted) =
            connecting.into_0rtt().map_err(|_| "the session does not allow early data")?;
        early = Some(accepted);
        connection
    } else {
        connecting.await?
    };
    let (requests, driving) = client(connection.clone()).await?;
    if arguments.rebind {
        responses.push(request.clone().run(connection.clone(), requests.clone()).await?);
        endpoint.rebind(UdpSocket::bind(any_port)?)?;
    }
    let running: Vec<_> = (0..arguments.count)
        .map(|_| tokio::spawn(request.clone().run(connection.clone(), requests.clone())))
        .collect();
    for each in running {
        responses.push(each.await??);
    }
    let early_data = match early {
        Some(accepted) => accepted.await,
        None => false,
    };
    println!("{}", json!({ "responses": responses, "early_data": early_data }));
    // The connection closes when no sender is left.
    drop(requests);
    driving.await?;
    endpoint.wait_idle().await;
    Ok(())
}

/// Starts HTTP/3 on a connection.
async fn client(connection: quinn::Connection) -> Result<(Requests, JoinHandle<()>), Failure> {
    let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    let driving = tokio::spawn(async move {
        std::future::poll_fn(|cx| driver.poll_close(cx)).await;
    });
    Ok((requests, driving))
}

#[derive(Clone)]
struct Exchange {
    url: Uri,
    content: Option<Bytes>,
    update_keys: bool,
}

impl Exchange {
    async fn run(
        self,
        connection: quinn::Connection,
        mut requests: Requests,
    ) -> Result<Value, Failure> {
        let method = if self.content.is_some() { Method::POST } else { Method::GET };
        let mut stream = requests
            .send_request(Request::builder().method(method).uri(self.url).body(())?)
            .await?;
        if let Some(content) = self.content {
            stream.send_data(content).await?;
        }
        stream.finish().await?;
        let response = stream.recv_response().await?;
        let (mut size, mut hash) = (0, Sha256::new());
        while let Some(mut data) = stream.recv_data().await? {
            if self.update_keys && size == 0 {
                connection.force_key_update();
            }
            let data = data.copy_to_bytes(data.remaining());
            size += data.len();
            hash.update(&data);
        }
        let digest =
            hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        let trailers = stream.recv_trailers().await?.map_or(0, |trailers| trailers.len());
        Ok(
            json!({ "status": response.status().as_u16(), "size": size, "sha256": digest, "trailers": trailers }),
        )
    }
}
