//! Message semantics, whatever the protocol: interim responses, expectations, trailers, lengths,
//! hosts, and failing handlers.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::raw_tls::RawTls;
use crate::support::{Bench, PROTOCOLS, fetch, get, trust};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, EXPECT, HOST, LINK, TE, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use pronghorn_engine::{
    Body, ClientRequest, Config, Connection, Group, Limits, Protocol, Request, Responder, Response,
    SharedFields,
};

type Handler = Box<dyn Fn(Request, Responder)>;

/// A bench whose server uses `handler`.
fn serving(handler: impl Fn(Request, Responder) + Clone + 'static) -> Bench {
    serving_as(&Config::default(), handler)
}

fn serving_as(config: &Config, handler: impl Fn(Request, Responder) + Clone + 'static) -> Bench {
    Bench::new(1, config, move |_| -> Handler { Box::new(handler.clone()) })
}

fn early_hint(link: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(LINK, HeaderValue::from_static(link))])
}

type Interim = Vec<(StatusCode, Option<HeaderValue>)>;

/// Sends a request, and returns its interim responses and the final one.
async fn informed(
    connection: &mut Connection,
    request: http::Request<Body>,
) -> (Interim, StatusCode, Bytes) {
    let mut interim = Interim::new();
    let mut note = |status, headers: HeaderMap| interim.push((status, headers.get(LINK).cloned()));
    let request = ClientRequest::new(request).on_interim(&mut note);
    let response = connection.send(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap();
    (interim, status, body.to_bytes())
}

#[test]
fn interim_responses_arrive_before_the_final_one() {
    for protocol in PROTOCOLS {
        // One at once, one later, and the final one in the same turn as the last interim one.
        let mut bench = serving(|_, mut responder: Responder| {
            responder.send_interim(StatusCode::EARLY_HINTS, &early_hint("</a.css>; rel=preload"));
            let handle = responder.handle().clone();
            handle.clone().spawn(async move {
                handle.sleep(Duration::from_secs(1)).await;
                responder.send_interim(StatusCode::PROCESSING, &HeaderMap::new());
                responder
                    .send_interim(StatusCode::EARLY_HINTS, &early_hint("</b.js>; rel=preload"));
                responder.send(Response::new(StatusCode::OK).with_body("done"));
            });
        });
        let mut connection = bench.connect(protocol);
        let first = Rc::new(Cell::new(false));
        let (seen, mark) = (first.clone(), first);
        bench.client.handle().spawn(async move {
            for _ in 0..2 {
                let link = |text| Some(HeaderValue::from_static(text));
                let mark = mark.clone();
                let mut interim = Interim::new();
                let mut note = |status, headers: HeaderMap| {
                    mark.set(true);
                    interim.push((status, headers.get(LINK).cloned()));
                };
                let request = ClientRequest::new(get("/")).on_interim(&mut note);
                let response = connection.send(request).await.unwrap();
                assert_eq!(response.status(), StatusCode::OK, "{protocol}");
                assert_eq!(
                    response.into_body().collect().await.unwrap().to_bytes(),
                    "done",
                    "{protocol}"
                );
                let expected = [
                    (StatusCode::EARLY_HINTS, link("</a.css>; rel=preload")),
                    (StatusCode::PROCESSING, None),
                    (StatusCode::EARLY_HINTS, link("</b.js>; rel=preload")),
                ];
                assert_eq!(interim, expected, "{protocol}");
            }
            mark.set(false);
        });
        // The first arrives while the handler sleeps and the clock stands still.
        bench.turn_until(|_| seen.get());
        bench.turn_until(|bench| {
            bench.skip(Duration::from_millis(100));
            !seen.get()
        });
    }
}

#[test]
fn interim_responses_are_limited() {
    let few = Config {
        limits: Limits::default().with_interim_responses(3).unwrap(),
        ..Config::default()
    };
    for (protocol, config, most) in PROTOCOLS
        .into_iter()
        .flat_map(|protocol| [(protocol, Config::default(), 16), (protocol, few.clone(), 3)])
    {
        let mut bench = serving_as(&config, |_, mut responder: Responder| {
            for _ in 0..20 {
                responder
                    .send_interim(StatusCode::EARLY_HINTS, &early_hint("</a.css>; rel=preload"));
            }
            // Neither is a valid interim response.
            responder.send_interim(StatusCode::OK, &HeaderMap::new());
            responder.send_interim(StatusCode::SWITCHING_PROTOCOLS, &HeaderMap::new());
            responder.send(Response::new(StatusCode::NO_CONTENT));
        });
        let mut connection = bench.connect(protocol);
        let (interim, status, _) =
            bench.run(async move { informed(&mut connection, get("/")).await });
        assert_eq!((interim.len(), status), (most, StatusCode::NO_CONTENT), "{protocol}");
        assert_eq!(
            bench.count(|stats| stats.interim_responses_dropped.value()),
            20 - most as u64,
            "{protocol}"
        );
    }
}

/// A body that waits until `go` is set.
struct GatedBody {
    go: Rc<Cell<bool>>,
    content: Option<Bytes>,
}

impl http_body::Body for GatedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if !self.go.get() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.content.take().map(|content| Ok(Frame::data(content))))
    }
}

#[test]
fn continue_is_sent_when_the_content_is_read() {
    for protocol in PROTOCOLS {
        let mut bench = serving(|request: Request, responder: Responder| {
            responder.respond(async move {
                let content = request.body.collect().await.unwrap().to_bytes();
                Response::new(StatusCode::OK).with_body(content)
            });
        });
        let mut connection = bench.connect(protocol);
        let (interim, status, body) = bench.run(async move {
            let go = Rc::new(Cell::new(false));
            let body = Body::stream(GatedBody {
                go: go.clone(),
                content: Some(Bytes::from_static(b"content")),
            });
            let request = http::Request::post("https://localhost/")
                .header(EXPECT, "100-continue")
                .body(body)
                .unwrap();
            let mut interim = Interim::new();
            let mut note = |status, _| {
                interim.push((status, None));
                go.set(true);
            };
            let request = ClientRequest::new(request).on_interim(&mut note);
            let response = connection.send(request).await.unwrap();
            let status = response.status();
            (interim, status, response.into_body().collect().await.unwrap().to_bytes())
        });
        assert_eq!(
            (interim, status, body),
            (vec![(StatusCode::CONTINUE, None)], StatusCode::OK, "content".into()),
            "{protocol}"
        );
    }
}

#[test]
fn answer_that_needs_no_content_is_sent_without_continue() {
    for protocol in PROTOCOLS {
        let mut bench =
            serving(|_, responder: Responder| responder.send(Response::new(StatusCode::FORBIDDEN)));
        let mut connection = bench.connect(protocol);
        let (interim, status, _) = bench.run(async move {
            let body = Body::stream(GatedBody { go: Rc::default(), content: None });
            let request = http::Request::post("https://localhost/")
                .header(EXPECT, "100-continue")
                .body(body)
                .unwrap();
            informed(&mut connection, request).await
        });
        assert_eq!((interim, status), (vec![], StatusCode::FORBIDDEN), "{protocol}");
    }
}

#[test]
fn unknown_expectation_is_answered_417() {
    for protocol in PROTOCOLS {
        let mut bench = serving(|_, _| panic!("the request reached the handler"));
        let mut connection = bench.connect(protocol);
        let mut request = get("/");
        request.headers_mut().insert(EXPECT, HeaderValue::from_static("a-miracle"));
        let answer = bench.run(async move { fetch(&mut connection, request).await });
        assert_eq!(answer.unwrap().0, StatusCode::EXPECTATION_FAILED, "{protocol}");
        assert_eq!(bench.count(|stats| stats.requests_refused.value()), 1, "{protocol}");
    }
}

fn with_trailers(content: &'static str, name: &'static str, value: &'static str) -> Body {
    let trailers = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]);
    Body::stream(
        Full::new(Bytes::from_static(content.as_bytes()))
            .with_trailers(async move { Some(Ok(trailers)) }),
    )
}

#[test]
fn trailers_go_both_ways() {
    for (protocol, has_length) in
        PROTOCOLS.into_iter().flat_map(|protocol| [(protocol, false), (protocol, true)])
    {
        let seen = Rc::new(RefCell::new(None));
        let slot = seen.clone();
        let mut bench = serving(move |request: Request, responder: Responder| {
            let slot = slot.clone();
            responder.respond(async move {
                let content = request.body.collect().await.unwrap();
                *slot.borrow_mut() = content.trailers().cloned();
                let response = Response::new(StatusCode::OK)
                    .with_header(TRAILER, HeaderValue::from_static("x-back"));
                let response = if has_length {
                    response.with_header(CONTENT_LENGTH, 6.into())
                } else {
                    response
                };
                response.with_body(with_trailers("answer", "x-back", "2"))
            });
        });
        let mut connection = bench.connect(protocol);
        let request = http::Request::post("https://localhost/")
            .header(TE, "trailers")
            .header(TRAILER, "x-forth");
        let request = request.body(with_trailers("question", "x-forth", "1")).unwrap();
        let answer = bench.run(async move {
            connection.send(request).await.unwrap().into_body().collect().await.unwrap()
        });
        assert_eq!(answer.trailers().unwrap()["x-back"], "2", "{protocol}");
        assert_eq!(answer.to_bytes(), "answer", "{protocol}");
        assert_eq!(seen.borrow().as_ref().unwrap()["x-forth"], "1", "{protocol}");
    }
}

#[test]
fn request_names_its_host_in_both_places() {
    for protocol in PROTOCOLS {
        let mut bench = serving(|request: Request, responder: Responder| {
            let said = format!("{} {}", request.uri, request.headers[HOST].to_str().unwrap());
            responder.send(Response::new(StatusCode::OK).with_body(said));
        });
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut connection, get("/p?q=1")).await });
        assert_eq!(answer.unwrap().1, "https://localhost/p?q=1 localhost", "{protocol}");
    }
}

#[test]
fn handler_that_panics_answers_500_and_the_worker_goes_on() {
    for protocol in PROTOCOLS {
        let mut bench =
            serving(|request: Request, responder: Responder| match request.uri.path() {
                "/now" => panic!("as this test wants"),
                "/later" => responder.respond(async { panic!("as this test wants") }),
                _ => responder.send(Response::new(StatusCode::OK)),
            });
        let mut connection = bench.connect(protocol);
        let answers = bench.run(async move {
            let mut answers = Vec::new();
            for path in ["/now", "/later", "/"] {
                answers.push(fetch(&mut connection, get(path)).await.map(|answer| answer.0));
            }
            answers
        });
        let failed = Ok(StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answers, [failed.clone(), failed, Ok(StatusCode::OK)], "{protocol}");
        assert_eq!(bench.count(|stats| stats.handler_panics.value()), 2, "{protocol}");
    }
}

#[test]
fn content_that_is_read_after_the_answer_ends_with_its_trailers() {
    let (trust, read) = (trust(), Rc::<RefCell<Vec<String>>>::default());
    let reads = read.clone();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let read = reads.clone();
        move |request: Request, responder: Responder| {
            let read = read.clone();
            responder.handle().clone().spawn(async move {
                let content = request.body.collect().await.unwrap();
                let trailer = content
                    .trailers()
                    .map_or(String::new(), |trailers| format!("{:?}", trailers["x-end"]));
                read.borrow_mut().push(trailer);
            });
            responder.send(Response::new(StatusCode::OK).with_body("answer"));
        }
    });
    let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
    for number in 1..3 {
        client
            .send(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
        bench.turn_until(|_| {
            client.step();
            String::from_utf8_lossy(&client.received).matches("answer").count() == number
        });
        client.send(b"0\r\nx-end: yes\r\n\r\n");
        bench.turn_until(|_| {
            client.step();
            read.borrow().len() == number
        });
        assert_eq!(read.borrow()[number - 1], "\"yes\"");
    }
}

#[test]
fn http_1_0_request_needs_no_host() {
    let trust = trust();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), |_| {
        |request: Request, responder: Responder| {
            let said = format!("{} {:?}", request.uri, request.headers[HOST]);
            responder.send(Response::new(StatusCode::OK).with_body(said));
        }
    });
    let port = bench.address.port();
    for (request, answer) in [
        (
            "GET /path HTTP/1.0\r\n\r\n",
            format!("https://localhost:{port}/path \"localhost:{port}\""),
        ),
        (
            "GET / HTTP/1.0\r\nhost: a.example\r\n\r\n",
            "https://a.example/ \"a.example\"".to_owned(),
        ),
        ("GET http://b.example/ HTTP/1.0\r\n\r\n", "http://b.example/ \"b.example\"".to_owned()),
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request".to_owned()),
    ] {
        let mut client = RawTls::connect(&mut bench, &trust, b"http/1.1");
        client.send(request.as_bytes());
        client.wait_for_close(&mut bench);
        let received = String::from_utf8(client.received).unwrap();
        assert!(received.contains(&answer), "{request:?}: {received}");
    }
}

#[test]
fn body_that_panics_ends_its_message() {
    for protocol in PROTOCOLS {
        let mut bench = serving(|request: Request, responder: Responder| {
            let mut pieces = 0;
            let body = Pieces(move || {
                pieces += 1;
                assert!(pieces < 3, "as this test wants");
                Some(Bytes::from_static(b"piece"))
            });
            let body =
                if request.uri.path() == "/" { Body::from("whole") } else { Body::stream(body) };
            responder.send(Response::new(StatusCode::OK).with_body(body));
        });
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut connection, get("/breaks")).await });
        let error = answer.unwrap_err();
        let says = match protocol {
            Protocol::Http1 => "",
            Protocol::Http2 => "unexpected internal error",
            Protocol::Http3 => "H3_INTERNAL_ERROR",
        };
        assert!(error.contains(says), "{protocol}: {error}");
        assert_eq!(bench.count(|stats| stats.handler_panics.value()), 1, "{protocol}");
        let mut connection = bench.connect(protocol);
        let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
        assert_eq!(answer, Ok((StatusCode::OK, "whole".into())), "{protocol}");
    }
}

/// A body that yields what a function returns.
struct Pieces<F>(F);

impl<F: FnMut() -> Option<Bytes> + Unpin> http_body::Body for Pieces<F> {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready((self.0)().map(|piece| Ok(Frame::data(piece))))
    }
}

#[test]
fn wrong_content_length_aborts_response() {
    for protocol in PROTOCOLS {
        for (announced, content) in [("4", "12345"), ("6", "12345")] {
            let mut bench = serving(move |_, responder: Responder| {
                let mut left = Some(Bytes::from_static(content.as_bytes()));
                let body = Pieces(move || left.take());
                let response = Response::new(StatusCode::OK)
                    .with_header(CONTENT_LENGTH, HeaderValue::from_static(announced));
                responder.send(response.with_body(Body::stream(body)));
            });
            let mut connection = bench.connect(protocol);
            let answer = bench.run(async move { fetch(&mut connection, get("/")).await });
            assert!(answer.is_err(), "{protocol}: {announced} {answer:?}");
        }
    }
}

#[test]
fn impossible_content_length_is_corrected() {
    for protocol in PROTOCOLS {
        for wrong in ["4", "six", "-1"] {
            let mut bench = serving(move |_, responder: Responder| {
                let response = Response::new(StatusCode::OK)
                    .with_header(CONTENT_LENGTH, HeaderValue::from_static(wrong));
                responder.send(response.with_body("12345"));
            });
            let mut connection = bench.connect(protocol);
            let length = bench.run(async move {
                let response = connection.send(get("/")).await.unwrap();
                let length = response.headers()[CONTENT_LENGTH].clone();
                assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "12345");
                length
            });
            assert_eq!(length, "5", "{protocol}");
            assert_eq!(
                bench.count(|stats| stats.content_lengths_corrected.value()),
                1,
                "{protocol}"
            );
        }
    }
}

#[test]
fn empty_head_response_has_no_content_length() {
    for protocol in PROTOCOLS {
        let mut bench = serving(|request: Request, responder: Responder| {
            let response = Response::new(StatusCode::OK);
            // The application may set a length that it knows.
            responder.send(match request.uri.path() {
                "/content" => response.with_body("12345"),
                "/line" => response.with_header(CONTENT_LENGTH, HeaderValue::from_static("0")),
                _ => response,
            });
        });
        let mut connection = bench.connect(protocol);
        for (path, announced) in [("/", None), ("/content", Some("5")), ("/line", Some("0"))] {
            let request = http::Request::head(format!("https://localhost{path}"))
                .body(Body::empty())
                .unwrap();
            let (response, asked) =
                bench.run(async move { (connection.send(request).await.unwrap(), connection) });
            connection = asked;
            let length =
                response.headers().get(CONTENT_LENGTH).map(|length| length.to_str().unwrap());
            assert_eq!(length, announced, "{protocol} {path}");
        }
    }
}

/// A response: the fields shared by many responses, and its own.
#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    same: Vec<(&'static str, &'static str)>,
    own: Vec<(&'static str, &'static str)>,
    is_streamed: bool,
}

impl Answer {
    fn respond(&self, is_shared: bool) -> Response {
        let lines = |lines: &[(&'static str, &'static str)]| -> HeaderMap {
            let line = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            let mut map = HeaderMap::new();
            map.extend(lines.iter().map(line));
            map
        };
        let mut response = Response::new(StatusCode::from_u16(self.status).unwrap());
        response.headers = lines(&self.own);
        if is_shared {
            response = response.with_shared(Arc::new(SharedFields::new(lines(&self.same))));
        } else {
            response.headers.extend(
                lines(&self.same).iter().map(|(name, value)| (name.clone(), value.clone())),
            );
        }
        let mut left = Some(Bytes::from_static(b"12345"));
        if self.is_streamed {
            response.with_body(Body::stream(Pieces(move || left.take())))
        } else {
            response.with_body("12345")
        }
    }
}

#[test]
fn shared_fields_arrive_like_own_fields() {
    let mut answers = Vec::new();
    for status in [200, 204, 304, 101] {
        for same in [
            vec![("content-type", "text/plain"), ("etag", "\"1\"")],
            vec![("content-length", "5"), ("set-cookie", "a=b")],
            vec![("content-length", "4")],
            vec![("content-length", "five"), ("transfer-encoding", "chunked")],
            vec![
                ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ("server", "another"),
                ("alt-svc", "clear"),
                ("priority", "u=1"),
            ],
        ] {
            for own in
                [vec![], vec![("x-own", "1"), ("etag", "\"2\"")], vec![("content-length", "5")]]
            {
                for is_streamed in [false, true] {
                    answers.push(Answer {
                        status,
                        same: same.clone(),
                        own: own.clone(),
                        is_streamed,
                    });
                }
            }
        }
    }
    for protocol in PROTOCOLS {
        for method in [Method::GET, Method::HEAD] {
            let plan = answers.clone();
            let mut bench = serving(move |request: Request, responder: Responder| {
                let (kind, number) = request.uri.path()[1..].split_once('/').unwrap();
                responder.send(plan[number.parse::<usize>().unwrap()].respond(kind == "shared"));
            });
            let mut connection = None;
            let mut complete = 0;
            for (number, answer) in answers.iter().enumerate() {
                let [own, shared] = ["own", "shared"].map(|kind| {
                    let before = bench.count(|stats| stats.content_lengths_corrected.value());
                    let uri = format!("https://localhost/{kind}/{number}");
                    let request = http::Request::builder()
                        .method(&method)
                        .uri(uri)
                        .body(Body::empty())
                        .unwrap();
                    let mut asked = connection.take().unwrap_or_else(|| bench.connect(protocol));
                    let (heard, asked) = bench.run(async move {
                        let answer = async {
                            let (head, body) = asked.send(request).await.ok()?.into_parts();
                            let mut lines: Vec<_> = head
                                .headers
                                .iter()
                                .map(|(name, value)| format!("{name}: {value:?}"))
                                .collect();
                            lines.retain(|line| {
                                !line.starts_with("date: ") || line.contains("1994")
                            });
                            lines.sort();
                            Some((head.status, lines, body.collect().await.ok()?.to_bytes()))
                        };
                        (answer.await, asked)
                    });
                    // After content of another length than announced, HTTP/1.1 needs a new
                    // connection.
                    connection = Some(asked).filter(|_| heard.is_some());
                    (heard, bench.count(|stats| stats.content_lengths_corrected.value()) - before)
                });
                assert_eq!(own, shared, "{protocol} {method} {answer:?}");
                complete += usize::from(own.0.is_some());
            }
            assert!(
                complete > answers.len() / 2,
                "{protocol} {method}: {complete} answers say too little"
            );
        }
    }
}

/// Responds with the request's target and fields.
fn mirror(Request { uri, headers, .. }: Request, responder: Responder) {
    let mut said = vec![uri.to_string()];
    said.extend(headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())));
    said.sort();
    responder.send(Response::new(StatusCode::OK).with_body(said.join("\n")));
}

#[test]
fn given_host_is_used() {
    for protocol in PROTOCOLS {
        let mut bench = serving(mirror);
        let mut connection = bench.connect(protocol);
        for uri in ["https://localhost/p?q", "/p?q"] {
            let request = http::Request::get(uri)
                .header(HOST, "other.example:8443")
                .body(Body::empty())
                .unwrap();
            let (answer, asked) =
                bench.run(async move { (fetch(&mut connection, request).await, connection) });
            connection = asked;
            let said = answer.unwrap().1;
            assert_eq!(
                said, "host: other.example:8443\nhttps://other.example:8443/p?q",
                "{protocol} {uri}"
            );
        }
        let request = http::Request::get("https://localhost/")
            .header(HOST, "a")
            .header(HOST, "b")
            .body(Body::empty())
            .unwrap();
        let answer = bench.run(async move { fetch(&mut connection, request).await });
        assert!(answer.is_err(), "{protocol}: {answer:?}");
    }
}

#[test]
fn fields_of_a_connection_do_not_come_with_a_response() {
    const FIELDS: [(&str, &str); 5] = [
        ("te", "gzip"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("upgrade", "h2c"),
        ("x-end", "2"),
    ];
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let mut bench = serving(|_, responder| {
            let named = FIELDS.map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            let mut response =
                Response::new(StatusCode::OK).with_body(with_trailers("content", "te", "gzip"));
            response.headers.extend(named);
            responder.send(response);
        });
        let mut connection = bench.connect(protocol);
        let (head, body) = bench.run(async move {
            let (head, body) = connection.send(get("/")).await.unwrap().into_parts();
            (head, body.collect().await)
        });
        let left: Vec<_> = FIELDS
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| head.headers.contains_key(*name))
            .collect();
        assert_eq!((head.status, &left[..]), (StatusCode::OK, &["x-end"][..]), "{protocol}");
        assert_eq!(body.unwrap().to_bytes(), "content", "{protocol}");
    }
}

#[test]
fn connection_fields_are_not_forwarded() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let mut bench = serving(mirror);
        let mut connection = bench.connect(protocol);
        let mut request = get("/");
        for (name, value) in [
            ("connection", "keep-alive, x-hop"),
            ("connection", "TE, upgrade"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip;q=0.5, Trailers"),
            ("x-hop", "1"),
            ("x-end", "2"),
        ] {
            request.headers_mut().append(name, HeaderValue::from_static(value));
        }
        let answer = bench.run(async move { fetch(&mut connection, request).await });
        assert_eq!(
            answer.unwrap().1,
            "host: localhost\nhttps://localhost/\nte: trailers\nx-end: 2",
            "{protocol}"
        );
    }
}

#[test]
fn request_with_content_of_another_length_than_it_says_is_not_sent() {
    let mut bench =
        serving(|_, responder: Responder| responder.send(Response::new(StatusCode::OK)));
    let mut connection = bench.connect(Protocol::Http1);
    let request = http::Request::post("https://localhost/")
        .header(CONTENT_LENGTH, "4")
        .body(Body::from("12345"))
        .unwrap();
    assert!(bench.run(async move { fetch(&mut connection, request).await }).is_err());
}

#[test]
fn get_with_content_of_unknown_length_arrives_whole() {
    for protocol in PROTOCOLS {
        let mut bench = serving(|request: Request, responder: Responder| {
            responder.respond(async move {
                Response::new(StatusCode::OK)
                    .with_body(request.body.collect().await.unwrap().to_bytes())
            });
        });
        let mut connection = bench.connect(protocol);
        let mut request = get("/");
        *request.body_mut() = Body::stream(GatedBody {
            go: Rc::new(Cell::new(true)),
            content: Some(Bytes::from_static(b"content")),
        });
        let answer = bench.run(async move { fetch(&mut connection, request).await });
        assert_eq!(answer, Ok((StatusCode::OK, "content".into())), "{protocol}");
    }
}
