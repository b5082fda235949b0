//! WebSocket: refused requests.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::BodyExt;
use pronghorn_engine::websocket::{self, ConnectError, Error, Options, WebSocketUpgrade};
use pronghorn_engine::{
    Body, Config, Protocol, Request as EngineRequest, Responder, Response, Upgrade,
};

use super::{Ends, echo, turns, uri};
use crate::support::{Bench, PROTOCOLS};

#[test]
fn malformed_upgrade_requests_are_refused() {
    for protocol in PROTOCOLS {
        let mut bench =
            Bench::new(1, &Config::default(), echo(&Options::default(), &Ends::default()));
        let ask = |bench: &mut Bench,
                   upgrade: Option<&str>,
                   lines: &[(HeaderName, &'static str)]| {
            let mut request = Request::get(uri()).body(Body::empty()).unwrap();
            request.headers_mut().extend(
                lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))),
            );
            if let Some(upgrade) = upgrade {
                request.extensions_mut().insert(Upgrade::new(upgrade));
            }
            let mut connection = bench.connect(protocol);
            bench.run(async move {
                let response = connection.send(request).await.unwrap();
                let (head, body) = response.into_parts();
                if head.status != StatusCode::SWITCHING_PROTOCOLS {
                    let _: Bytes = body.collect().await.unwrap().to_bytes();
                }
                head
            })
        };
        let key = (HeaderName::from_static("sec-websocket-key"), "dGhlIHNhbXBsZSBub25jZQ==");
        let version = (SEC_WEBSOCKET_VERSION, "13");
        let is_http1 = protocol == Protocol::Http1;
        let no = if is_http1 { StatusCode::UPGRADE_REQUIRED } else { StatusCode::BAD_REQUEST };
        let head = ask(&mut bench, None, &[key.clone(), version.clone()]);
        assert_eq!((head.status, head.headers.contains_key(UPGRADE)), (no, is_http1), "{protocol}");
        assert_eq!(
            ask(&mut bench, Some("h2c"), &[key.clone(), version.clone()]).status,
            no,
            "{protocol}"
        );
        let head = ask(&mut bench, Some("websocket"), &[key.clone(), (SEC_WEBSOCKET_VERSION, "8")]);
        assert_eq!(
            (head.status, &head.headers[SEC_WEBSOCKET_VERSION]),
            (StatusCode::UPGRADE_REQUIRED, &HeaderValue::from_static("13"))
        );
        if is_http1 {
            assert_eq!(
                ask(&mut bench, Some("websocket"), std::slice::from_ref(&version)).status,
                StatusCode::BAD_REQUEST
            );
            let short = (key.0.clone(), "c2hvcnQ=");
            assert_eq!(
                ask(&mut bench, Some("websocket"), &[short, version.clone()]).status,
                StatusCode::BAD_REQUEST
            );
            // RFC 6455, section 1.3.
            let head = ask(&mut bench, Some("websocket"), &[key, version]);
            assert_eq!(head.headers[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
    }
}

#[test]
fn client_gets_the_refusing_response() {
    for protocol in PROTOCOLS {
        let mut bench = Bench::new(1, &Config::default(), |_| {
            |_, responder: Responder| {
                responder.send(Response::new(StatusCode::FORBIDDEN).with_body("members only"));
            }
        });
        let mut connection = bench.connect(protocol);
        let text = bench.run(async move {
            match websocket::connect(&mut connection, uri(), HeaderMap::new(), &Options::default())
                .await
            {
                Err(ConnectError::Refused(response)) => {
                    assert_eq!(response.status(), StatusCode::FORBIDDEN);
                    response.into_body().collect().await.unwrap().to_bytes()
                }
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(text, "members only", "{protocol}");
    }
}

#[test]
fn unrequested_upgrade_is_refused() {
    for protocol in PROTOCOLS {
        let end = Rc::new(RefCell::new(None));
        let told = end.clone();
        let mut bench = Bench::new(1, &Config::default(), move |_| {
            let told = told.clone();
            move |request: EngineRequest, responder: Responder| {
                let handle = responder.handle().clone();
                let mut upgrade =
                    WebSocketUpgrade::from_request(&request, &Options::default()).unwrap();
                upgrade
                    .headers_mut()
                    .insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("another"));
                let mut socket = upgrade.accept(responder, request.body);
                let told = told.clone();
                handle.spawn(async move {
                    *told.borrow_mut() = Some(socket.recv().await);
                });
            }
        });
        let mut connection = bench.connect(protocol);
        let (result, _connection) = bench.run(async move {
            (
                websocket::connect(&mut connection, uri(), HeaderMap::new(), &Options::default())
                    .await,
                connection,
            )
        });
        assert!(matches!(result, Err(ConnectError::Invalid(_))), "{protocol}: {result:?}");
        turns(&mut bench, 100);
        assert_eq!(end.take(), Some(Some(Err(Error::Aborted))), "{protocol}");
    }
}
