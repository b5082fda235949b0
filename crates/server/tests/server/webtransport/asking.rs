//! What becomes of requests for a session.

use axum::Router;
use axum::routing::any;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version};
use pronghorn_engine as engine;
use pronghorn_engine::{ConnectError, Protocol, Upgrade};
use pronghorn_server::{Body, Limits, Peer, WebTransportUpgrade};
use tokio::sync::mpsc;
use tower::service_fn;

use super::{hello, site, to, uri, with_connection};
use crate::support::{Never, PROTOCOLS, Site, run, text};

#[test]
fn refusal_of_a_session_is_a_response_like_any_other() {
    let app = Router::new().route("/no", any(|| async { (StatusCode::FORBIDDEN, "no") })).route("/hello", any(|| async { "hello" }));
    let site = Site::with(|server| server.webtransport().start(app).unwrap());
    with_connection(to(&site), async move |mut connection| {
        // Nobody would serve a session that an ordinary handler has answered.
        let refusals = [("/no", StatusCode::FORBIDDEN), ("/none", StatusCode::NOT_FOUND), ("/hello", StatusCode::NOT_IMPLEMENTED)];
        for (path, status) in refusals {
            match engine::WebTransport::connect(&mut connection, uri(path), HeaderMap::new()).await {
                Err(ConnectError::Refused(refused)) => assert_eq!(refused, status, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(hello(&mut connection).await, StatusCode::OK);
    });
}

#[test]
fn response_that_is_no_success_after_all_drops_what_would_have_served() {
    let (left, mut leaving) = mpsc::unbounded_channel::<()>();
    let enter = service_fn(move |request: Request<Body>| {
        let left = left.clone();
        async move {
            let upgrade = request.extensions().get::<WebTransportUpgrade>().unwrap();
            let mut response = upgrade.on_session(async move |session| {
                left.send(()).unwrap();
                session.closed().await;
            });
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Ok::<_, Never>(response)
        }
    });
    let site = Site::with(|server| server.webtransport().start(enter).unwrap());
    with_connection(to(&site), async move |mut connection| {
        let refused = engine::WebTransport::connect(&mut connection, uri("/"), HeaderMap::new()).await;
        assert!(matches!(refused, Err(ConnectError::Refused(StatusCode::SERVICE_UNAVAILABLE))), "{refused:?}");
        drop((connection, site));
        assert_eq!(leaving.recv().await, None);
    });
}

#[test]
fn service_sees_the_request_for_a_session_as_any_other() {
    let enter = service_fn(|request: Request<Body>| async move {
        let peer = request.extensions().get::<Peer>().unwrap();
        assert_eq!((request.version(), peer.protocol), (Version::HTTP_3, Protocol::Http3));
        assert_eq!(peer.server_name.as_deref(), Some("localhost"));
        let said = format!("{} {} {:?}", request.method(), request.uri(), request.headers()["x-who"]);
        let upgrade = request.extensions().get::<WebTransportUpgrade>().unwrap();
        let mut response: Response<Body> = upgrade.on_session(async move |session| {
            session.send_datagram(said).unwrap();
            session.closed().await;
        });
        response.headers_mut().insert("x-room", HeaderValue::from_static("7"));
        Ok::<_, Never>(response)
    });
    let site = Site::with(|server| server.webtransport().start(enter).unwrap());
    with_connection(to(&site), async move |mut connection| {
        let headers = HeaderMap::from_iter([("x-who".parse().unwrap(), HeaderValue::from_static("me"))]);
        let session = engine::WebTransport::connect(&mut connection, uri("/room?7"), headers).await.unwrap();
        assert_eq!(session.read_datagram().await.unwrap(), "CONNECT https://localhost/room?7 \"me\"");
    });
}

#[test]
fn other_requests_to_the_route_are_refused_and_told_why() {
    let (site, _accepted) = site(Limits::default());
    run(async {
        for protocol in PROTOCOLS {
            let response = site.client(protocol).send(site.get("/")).await.unwrap();
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{protocol}");
            assert!(text(response).await.contains("WebTransport"));
        }
    });
}

#[test]
fn sessions_are_not_offered_unless_that_is_asked_for() {
    let app = Router::new().route("/", any(async |_: WebTransportUpgrade| "never"));
    let site = Site::new(app);
    with_connection(to(&site), async move |mut connection| {
        let refused = engine::WebTransport::connect(&mut connection, uri("/"), HeaderMap::new()).await;
        assert!(matches!(refused, Err(ConnectError::NotOffered)), "{refused:?}");
        // Another protocol of that name is nothing that the service was promised either.
        let mut request = Request::connect(uri("/")).body(engine::Body::empty()).unwrap();
        request.extensions_mut().insert(Upgrade::new("webtransport"));
        assert!(connection.send(request).await.is_err());
    });
}
