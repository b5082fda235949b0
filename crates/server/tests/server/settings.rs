//! Effects of the builder's settings on clients.

use axum::Router;
use axum::routing::{any, get};
use http::{Request, StatusCode, Version};
use pronghorn_server::client::Options;
use pronghorn_server::{AltSvc, Body, Client, Limits, Peer, Server};

use crate::support::{PROTOCOLS, Site, run, text};

fn app() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/own", get(|| async { ([("alt-svc", "clear")], "hello") }))
}

/// Returns the field of each version's response, if present.
fn field(site: &Site, path: &str, name: &str) -> Vec<Option<String>> {
    run(async {
        let mut found = Vec::new();
        for protocol in PROTOCOLS {
            let response = site.client(protocol).send(site.get(path)).await.unwrap();
            found
                .push(response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()));
        }
        found
    })
}

#[test]
fn alt_svc_field_follows_the_setting() {
    let site = Site::new(app());
    let here = Some(format!("h3=\":{}\"; ma=86400", site.address.port()));
    assert_eq!(field(&site, "/", "alt-svc"), [here.clone(), here.clone(), here]);
    assert_eq!(field(&site, "/own", "alt-svc"), vec![Some("clear".to_owned()); 3]);

    let site = Site::with(|server| server.alt_svc(AltSvc::Off).start(app()).unwrap());
    assert_eq!(field(&site, "/", "alt-svc"), [None, None, None]);

    let forwarded = "h3=\":443\"; ma=60";
    let site = Site::with(|server| {
        server.alt_svc(AltSvc::Value(forwarded.parse().unwrap())).start(app()).unwrap()
    });
    assert_eq!(field(&site, "/", "alt-svc"), vec![Some(forwarded.to_owned()); 3]);
}

#[test]
fn server_field_follows_the_setting() {
    let site = Site::new(app());
    assert_eq!(field(&site, "/", "server"), [None, None, None]);
    let site =
        Site::with(|server| server.server_header("example".parse().unwrap()).start(app()).unwrap());
    assert_eq!(field(&site, "/", "server"), vec![Some("example".to_owned()); 3]);
}

#[test]
fn limits_are_enforced() {
    let limits = Limits::default().with_request_body_bytes(1_000).unwrap();
    let site = Site::with(|server| {
        server.limits(limits).start(Router::new().route("/", any(|| async { "hello" }))).unwrap()
    });
    run(async {
        for protocol in PROTOCOLS {
            let request = Request::post(site.url("/")).body(Body::from(vec![b'x'; 1_001])).unwrap();
            let response = site.client(protocol).send(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE, "{protocol}");
        }
    });
}

#[test]
fn clear_text_and_both_address_families_are_served_with_tls() {
    async fn tell(peer: Peer, version: Version) -> String {
        format!("{version:?} {} {} {:?}", peer.secure, peer.remote.is_ipv6(), peer.server_name)
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new()
        .listen("[::]:0")
        .listen_clear("127.0.0.1:0")
        .development_certificate_in(folder.path());
    let running = server.start(Router::new().route("/", get(tell))).unwrap();
    let [secure, clear] = *running.local_addresses() else { panic!("two addresses") };
    assert!(secure.secure && !clear.secure);
    run(async {
        let client = Client::with_options(
            &Options { resolve: Options::default().resolve, ..crate::support::options(&folder) },
            1,
        )
        .unwrap();
        let ask = async |url: String| {
            text(client.send(Request::get(url).body(Body::empty()).unwrap()).await.unwrap()).await
        };
        assert_eq!(
            ask(format!("https://127.0.0.1:{}/", secure.address.port())).await,
            "HTTP/2.0 true false None"
        );
        assert_eq!(
            ask(format!("https://[::1]:{}/", secure.address.port())).await,
            "HTTP/2.0 true true None"
        );
        assert_eq!(ask(format!("http://{}/", clear.address)).await, "HTTP/1.1 false false None");
        let certificate = std::fs::read(folder.path().join("cert.pem")).unwrap();
        assert!(
            running.spki_sha256().is_some_and(|hash| !hash.is_empty() && !certificate.is_empty())
        );
    });
}

#[test]
fn qlog_is_complete_after_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::with(|server| server.qlog(folder.path()).start(app()).unwrap());
    run(async {
        site.text(&site.client(PROTOCOLS[2]), "/").await;
        site.handle().shut_down(std::time::Duration::from_secs(60));
        site.running.finished().await.unwrap();
    });
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(files.len(), 1);
    let content = std::fs::read_to_string(files[0].as_ref().unwrap().path()).unwrap();
    assert!(content.contains("connection_closed"), "{content}");
}

#[test]
fn only_clear_text_requests_are_redirected() {
    let site = Site::with(|server| {
        server.listen_clear("127.0.0.1:0").redirect_to_https().start(app()).unwrap()
    });
    let clear = site.running.local_addresses()[1].address.port();
    let secure = site.address.port();
    run(async {
        let client = Client::with_options(&site.any(), 1).unwrap();
        for (method, body) in [("GET", ""), ("POST", "content"), ("HEAD", "")] {
            let uri = format!("http://localhost:{clear}/a%2fb?c=d");
            let request =
                Request::builder().method(method).uri(uri).body(Body::from(body)).unwrap();
            let response = client.send(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
            assert_eq!(
                response.headers()["location"],
                format!("https://localhost:{secure}/a%2fb?c=d")
            );
        }
        for protocol in PROTOCOLS {
            assert_eq!(
                text(site.client(protocol).send(site.get("/")).await.unwrap()).await,
                "hello"
            );
        }
    });
}
