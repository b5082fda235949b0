//! A reverse proxy: HTTP/1.1, 2 and 3 downstream, any of them upstream.
//!
//! `cargo run -p pronghorn-server --example reverse_proxy -- --to https://localhost:9443 [--cacert
//! FILE]`

use std::convert::Infallible;

use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use pronghorn_server::client::{Options, Roots};
use pronghorn_server::{Body, Client, Peer};
use tower::service_fn;

mod support;

/// Hop-by-hop fields (RFC 9110, section 7.6.1). Fields listed in `connection` are removed too.
const HOP_BY_HOP: [HeaderName; 4] = [CONNECTION, TRANSFER_ENCODING, UPGRADE, TE];

#[tokio::main]
async fn main() -> support::Result {
    let to: Uri = support::argument("--to")
        .and_then(|to| to.parse().ok())
        .expect("missing upstream: --to https://HOST:PORT");
    let mut options = Options::default();
    if let Some(path) = support::argument("--cacert") {
        options.roots =
            Roots::pem(std::fs::read(path).expect("cannot read the file given with --cacert"));
    }
    let client = Client::with_options(&options, 1).expect("cannot start the client");
    let proxy = service_fn(move |request| {
        let (client, to) = (client.clone(), to.clone());
        async move { Ok::<_, Infallible>(forward(&client, &to, request).await) }
    });
    support::serve!(proxy)
}

async fn forward(client: &Client, to: &Uri, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut target = to.clone().into_parts();
    target.path_and_query = head.uri.path_and_query().cloned();
    let mut onward = Request::new(body);
    *onward.method_mut() = head.method;
    *onward.uri_mut() = Uri::from_parts(target).expect("the parts of two valid URIs form a URI");
    *onward.headers_mut() = head.headers;
    let headers = onward.headers_mut();
    remove_hop_by_hop(headers);
    if let Some(host) = headers.remove(HOST) {
        headers.insert("x-forwarded-host", host);
    }
    if let Some(peer) = head.extensions.get::<Peer>() {
        let address = HeaderValue::try_from(peer.remote.ip().to_string())
            .expect("an address is visible ASCII");
        headers.insert("x-forwarded-for", address);
    }
    match client.send(onward).await {
        Ok(mut response) => {
            remove_hop_by_hop(response.headers_mut());
            response
        }
        Err(error) => {
            let mut response = Response::new(Body::from(format!("{error}\n")));
            *response.status_mut() = if error.is_timeout() {
                StatusCode::GATEWAY_TIMEOUT
            } else {
                StatusCode::BAD_GATEWAY
            };
            response
        }
    }
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<_> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok().map(str::to_owned))
        .collect();
    let named = named
        .iter()
        .flat_map(|line| line.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok());
    for name in named.chain(HOP_BY_HOP) {
        headers.remove(name);
    }
}
