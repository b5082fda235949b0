//! Session requests.

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
fn refused_session_gets_an_ordinary_response() {
    let app = Router::new()
        .route("/no", any(|| async { (StatusCode::FORBIDDEN, "no") }))
        .route("/hello", any(|| async { "hello" }));
    let site = Site::with(|server| server.webtransport().start(app).unwrap());
    with_connection(to(&site), async move |mut connection| {
        // An ordinary handler's response would leave the session without a task.
        let refusals = [
            ("/no", StatusCode::FORBIDDEN),
            ("/none", StatusCode::NOT_FOUND),
            ("/hello", StatusCode::NOT_IMPLEMENTED),
        ];
        for (path, status) in refusals {
            match engine::WebTransport::connect(&mut connection, uri(path), HeaderMap::new()).await
            {
                Err(ConnectError::Refused(refused)) => assert_eq!(refused, status, "{path}"),
                other => panic!("{path}: {other:?}"),
            }
        }
        assert_eq!(hello(&mut connection).await, StatusCode::OK);
    });
}

#[test]
fn error_status_set_after_on_session_drops_the_session_task() {
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
        let refused =
            engine::WebTransport::connect(&mut connection, uri("/"), HeaderMap::new()).await;
        assert!(
            matches!(refused, Err(ConnectError::Refused(StatusCode::SERVICE_UNAVAILABLE))),
            "{refused:?}"
        );
        drop((connection, site));
        assert_eq!(leaving.recv().await, None);
    });
}

#[test]
fn service_sees_a_session_request_as_an_ordinary_request() {
    let enter = service_fn(|request: Request<Body>| async move {
        let peer = request.extensions().get::<Peer>().unwrap();
        assert_eq!((request.version(), peer.protocol), (Version::HTTP_3, Protocol::Http3));
        assert_eq!(peer.server_name.as_deref(), Some("localhost"));
        let said =
            format!("{} {} {:?}", request.method(), request.uri(), request.headers()["x-who"]);
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
        let headers =
            HeaderMap::from_iter([("x-who".parse().unwrap(), HeaderValue::from_static("me"))]);
        let session =
            engine::WebTransport::connect(&mut connection, uri("/room?7"), headers).await.unwrap();
        assert_eq!(
            session.read_datagram().await.unwrap(),
            "CONNECT https://localhost/room?7 \"me\""
        );
    });
}

#[test]
fn other_requests_to_a_session_route_are_refused_with_a_reason() {
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
fn sessions_are_not_offered_by_default() {
    let app = Router::new().route("/", any(async |_: WebTransportUpgrade| "never"));
    let site = Site::new(app);
    with_connection(to(&site), async move |mut connection| {
        let refused =
            engine::WebTransport::connect(&mut connection, uri("/"), HeaderMap::new()).await;
        assert!(matches!(refused, Err(ConnectError::Unsupported)), "{refused:?}");
        // Another protocol of that name is not passed to the service either.
        let mut request = Request::connect(uri("/")).body(engine::Body::empty()).unwrap();
        request.extensions_mut().insert(Upgrade::new("webtransport"));
        assert!(connection.send(request).await.is_err());
    });
}
