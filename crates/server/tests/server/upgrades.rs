//! axum's WebSockets over the three versions of HTTP.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::any;
use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, Version};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::rt::Read as _;
use pronghorn_engine::Upgrade;
use pronghorn_server::{Body, Client, Peer, Protocol};
use tokio::sync::mpsc;

use crate::support::{Never, PROTOCOLS, Site, run};

/// Data that the client sends after the request.
struct Sent(mpsc::UnboundedReceiver<Bytes>);

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        self.0.poll_recv(cx).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

/// A minimal WebSocket client: short frames, no extensions.
struct Socket {
    send: Option<mpsc::UnboundedSender<Bytes>>,
    body: Body,
    received: BytesMut,
}

impl Socket {
    async fn open(site: &Site, client: &Client, protocol: Protocol) -> Result<Self, StatusCode> {
        Self::open_at(site, client, protocol, "/ws").await
    }

    async fn open_at(
        site: &Site,
        client: &Client,
        protocol: Protocol,
        path: &str,
    ) -> Result<Self, StatusCode> {
        let (send, sent) = mpsc::unbounded_channel();
        let mut request = Request::get(site.url(path))
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .body(Body::new(Sent(sent)))
            .unwrap();
        request.extensions_mut().insert(Upgrade::new("websocket"));
        let response = client.send(request).await.unwrap();
        let granted = if protocol == Protocol::Http1 {
            StatusCode::SWITCHING_PROTOCOLS
        } else {
            StatusCode::OK
        };
        if response.status() != granted {
            return Err(response.status());
        }
        if protocol == Protocol::Http1 {
            assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        }
        Ok(Self { send: Some(send), body: response.into_body(), received: BytesMut::new() })
    }

    /// Sends a masked frame with a zero mask.
    fn send(&self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        self.send.as_ref().unwrap().send(frame.into()).unwrap();
    }

    /// Returns opcode and payload of the next frame; `None` at the end.
    async fn receive(&mut self) -> Option<(u8, Bytes)> {
        loop {
            if self.received.len() >= 2 {
                let length = usize::from(self.received[1]);
                if self.received.len() >= 2 + length {
                    let frame = self.received.split_to(2 + length).freeze();
                    return Some((frame[0] & 15, frame.slice(2..)));
                }
            }
            self.received.extend_from_slice(self.body.frame().await?.ok()?.data_ref()?);
        }
    }
}

#[test]
fn axum_websocket_exchanges_messages_and_closes() {
    async fn talk(mut socket: WebSocket, greeting: String) {
        socket.send(Message::text(greeting)).await.unwrap();
        while let Some(Ok(message)) = socket.recv().await {
            if let Message::Text(text) = message {
                socket.send(Message::text(format!("you said {text}"))).await.unwrap();
            }
        }
    }
    let upgrade = async |peer: Peer, version: Version, upgrade: WebSocketUpgrade| -> Response {
        upgrade.on_upgrade(move |socket| talk(socket, format!("{} {version:?}", peer.protocol)))
    };
    let site = Site::new(Router::new().route("/ws", any(upgrade)));
    run(async {
        for (protocol, version) in
            PROTOCOLS.into_iter().zip([Version::HTTP_11, Version::HTTP_2, Version::HTTP_3])
        {
            let mut socket = Socket::open(&site, &site.client(protocol), protocol).await.unwrap();
            assert_eq!(
                socket.receive().await.unwrap(),
                (1, Bytes::from(format!("{protocol} {version:?}")))
            );
            for word in ["one", "two"] {
                socket.send(1, word.as_bytes());
                assert_eq!(
                    socket.receive().await.unwrap(),
                    (1, Bytes::from(format!("you said {word}"))),
                    "{protocol}"
                );
            }
            socket.send(9, b"ping");
            assert_eq!(
                socket.receive().await.unwrap(),
                (10, Bytes::from_static(b"ping")),
                "{protocol}"
            );
            socket.send(8, &1000_u16.to_be_bytes());
            assert_eq!(socket.receive().await.unwrap().0, 8, "{protocol}");
            socket.send = None;
            assert_eq!(socket.receive().await, None, "{protocol}");
        }
    });
}

#[test]
fn application_sees_the_client_disconnect() {
    let (ended, mut ending) = mpsc::unbounded_channel();
    let upgrade = async move |upgrade: WebSocketUpgrade| -> Response {
        upgrade.on_upgrade(async move |mut socket| {
            socket.send(Message::text("hello")).await.unwrap();
            while let Some(Ok(_)) = socket.recv().await {}
            ended.send(()).unwrap();
        })
    };
    let site = Site::new(Router::new().route("/ws", any(upgrade)));
    run(async {
        for protocol in PROTOCOLS {
            let mut socket = Socket::open(&site, &site.client(protocol), protocol).await.unwrap();
            assert_eq!(socket.receive().await.unwrap().1, "hello");
            assert!(ending.try_recv().is_err(), "{protocol}");
            drop(socket);
            ending.recv().await.unwrap();
        }
    });
}

#[test]
fn application_that_drops_the_socket_ends_the_tunnel() {
    let upgrade = async |upgrade: WebSocketUpgrade| -> Response {
        upgrade.on_upgrade(async |socket| drop(socket))
    };
    let site = Site::new(Router::new().route("/ws", any(upgrade)));
    run(async {
        for protocol in PROTOCOLS {
            let mut socket = Socket::open(&site, &site.client(protocol), protocol).await.unwrap();
            assert_eq!(socket.receive().await, None, "{protocol}");
        }
    });
}

#[test]
fn refused_upgrade_gets_an_ordinary_response() {
    let site =
        Site::new(Router::new().route("/ws", any(|| async { (StatusCode::FORBIDDEN, "no") })));
    run(async {
        for protocol in PROTOCOLS {
            let refused = Socket::open(&site, &site.client(protocol), protocol).await.err();
            assert_eq!(refused, Some(StatusCode::FORBIDDEN), "{protocol}");
        }
    });
}

#[test]
fn service_that_ignores_the_upgrade_does_not_grant_it() {
    let app = Router::new()
        // The handler drops the upgrade and sends another response.
        .route("/ws", any(async |upgrade: WebSocketUpgrade| drop(upgrade)))
        .fallback(async |request: Request<axum::body::Body>| match request.uri().path() {
            "/101" => StatusCode::SWITCHING_PROTOCOLS,
            _ => StatusCode::OK,
        });
    let site = Site::new(app);
    run(async {
        for protocol in PROTOCOLS {
            for path in ["/ws", "/other", "/101"] {
                let expected = match (protocol, path) {
                    // An ordinary response.
                    (Protocol::Http1, "/ws" | "/other") => StatusCode::OK,
                    // These versions do not have status 101.
                    (Protocol::Http2 | Protocol::Http3, "/101") => {
                        StatusCode::INTERNAL_SERVER_ERROR
                    }
                    _ => StatusCode::NOT_IMPLEMENTED,
                };
                let status =
                    Socket::open_at(&site, &site.client(protocol), protocol, path).await.err();
                assert_eq!(status, Some(expected), "{protocol} {path}");
            }
        }
    });
}

/// Reads a tunnel to its end and returns how it ended.
fn end_of(
    request: Request<axum::body::Body>,
    ends: mpsc::UnboundedSender<Result<usize, std::io::ErrorKind>>,
) -> StatusCode {
    let is_http1 = request.version() < Version::HTTP_2;
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let mut upgraded = upgrade.await.unwrap();
        let mut count = 0;
        let end = loop {
            let mut space = [0; 64];
            let mut space = hyper::rt::ReadBuf::new(&mut space);
            match poll_fn(|cx| Pin::new(&mut upgraded).poll_read(cx, space.unfilled())).await {
                Ok(()) if space.filled().is_empty() => break Ok(count),
                Ok(()) => count += space.filled().len(),
                Err(error) => break Err(error.kind()),
            }
        };
        ends.send(end).unwrap();
    });
    if is_http1 { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK }
}

#[test]
fn application_distinguishes_end_and_reset_of_a_tunnel() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let site =
        Site::new(Router::new().route("/ws", any(async move |request| end_of(request, ends))));
    run(async {
        for protocol in [Protocol::Http2, Protocol::Http3] {
            let client = site.client(protocol);
            let mut socket = Socket::open(&site, &client, protocol).await.unwrap();
            socket.send(1, b"word");
            socket.send = None;
            assert_eq!(ended.recv().await, Some(Ok(10)), "{protocol}");
            // The client resets its side before its end.
            let Socket { send: _send, body, .. } =
                Socket::open(&site, &client, protocol).await.unwrap();
            drop(body);
            assert_eq!(
                ended.recv().await,
                Some(Err(std::io::ErrorKind::ConnectionReset)),
                "{protocol}"
            );
        }
    });
}

#[test]
fn application_panic_is_not_a_clean_end_of_its_tunnel() {
    let fail = async |request: Request<axum::body::Body>| {
        let upgrade = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let mut upgraded = upgrade.await.unwrap();
            let mut space = [0; 64];
            let mut space = hyper::rt::ReadBuf::new(&mut space);
            // The client has received the response.
            poll_fn(|cx| Pin::new(&mut upgraded).poll_read(cx, space.unfilled())).await.unwrap();
            // A panic without a message.
            std::panic::resume_unwind(Box::new(()));
        });
        StatusCode::OK
    };
    let site = Site::new(Router::new().route("/ws", any(fail)));
    run(async {
        for protocol in [Protocol::Http2, Protocol::Http3] {
            let mut socket = Socket::open(&site, &site.client(protocol), protocol).await.unwrap();
            socket.send(1, b"word");
            assert!(socket.body.frame().await.unwrap().is_err(), "{protocol}");
        }
    });
}

#[test]
fn stalled_reader_applies_backpressure_to_the_socket() {
    let (count, mut sent) = mpsc::unbounded_channel();
    let upgrade = async move |upgrade: WebSocketUpgrade| -> Response {
        upgrade.on_upgrade(async move |mut socket| {
            while socket.send(Message::binary(vec![0; 60 << 10])).await.is_ok() {
                if count.send(()).is_err() {
                    return;
                }
            }
        })
    };
    let site =
        Site::new(Router::new().route("/ws", any(upgrade)).route("/", any(|| async { "hello" })));
    run(async {
        for protocol in PROTOCOLS {
            let client = site.client(protocol);
            let mut socket = Socket::open(&site, &client, protocol).await.unwrap();
            socket.body.frame().await.unwrap().unwrap();
            for _ in 0..20 {
                site.text(&client, "/").await;
            }
            let mut bytes = 0_u64;
            while sent.try_recv().is_ok() {
                bytes += 60 << 10;
            }
            assert!((1..64 << 20).contains(&bytes), "{protocol}: {bytes}");
        }
    });
}
