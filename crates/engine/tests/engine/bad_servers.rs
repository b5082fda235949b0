//! Client tests: servers that violate the protocol, or end early.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use pronghorn_engine::{Body, ClientRequest, Config, Error, Limits, Protocol};

use crate::raw_server::{
    GOAWAY, REFUSED_STREAM, RST_STREAM, RawServer, ask, frame, head, post, settings,
};
use crate::support::{Bench, hello};

/// A complete response, or the error instead.
type Answer = Result<(StatusCode, Option<String>, Bytes), Error>;

/// Sends a request. Returns the slot for its response. The connection stays open.
fn begin(
    bench: &Bench,
    mut connection: pronghorn_engine::Connection,
    request: Request<Body>,
) -> Rc<RefCell<Option<Answer>>> {
    let answer = Rc::new(RefCell::new(None));
    let slot = answer.clone();
    bench.client.handle().spawn(async move {
        let result = async {
            let response = connection.send(request).await?;
            let length = response
                .headers()
                .get(CONTENT_LENGTH)
                .map(|length| length.to_str().unwrap().to_owned());
            let status = response.status();
            let content =
                response.into_body().collect().await.map_err(|error| Error::from(&error))?;
            Ok((status, length, content.to_bytes()))
        };
        *slot.borrow_mut() = Some(result.await);
        std::future::pending::<()>().await;
        drop(connection);
    });
    answer
}

/// Returns the client's result when an HTTP/1.1 server sends this response and closes the
/// connection.
fn told(method: Method, response: impl AsRef<[u8]>) -> Answer {
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let connection = server.connect(&mut bench, Protocol::Http1);
    let request =
        Request::builder().method(method).uri("http://localhost/").body(Body::empty()).unwrap();
    let answer = begin(&bench, connection, request);
    bench.turn_until(|_| {
        server.step();
        server.received.ends_with(b"\r\n\r\n")
    });
    server.send(response);
    for _ in 0..20 {
        bench.turn();
    }
    server.close();
    bench.turn_until(|_| answer.borrow().is_some());
    answer.take().unwrap()
}

#[test]
fn truncated_http1_response_is_an_error() {
    for response in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n0\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nsh",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "",
    ] {
        let answer = told(Method::GET, response);
        assert!(matches!(answer, Err(Error::Closed(_))), "{response:?}: {answer:?}");
    }
    let answer = told(Method::GET, "HTTP/1.0 200 OK\r\n\r\nall of it");
    assert_eq!(answer.unwrap().2, "all of it");
}

#[test]
fn http1_response_without_content_needs_no_end() {
    for (method, head) in [
        (Method::HEAD, "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"),
        (Method::HEAD, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        (Method::GET, "HTTP/1.1 204 No Content\r\n\r\n"),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n"),
    ] {
        let answer = told(method, head).unwrap();
        assert_eq!(answer.2, "", "{head}");
    }
}

#[test]
fn oversized_http1_head_is_reported() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "x".repeat(70_000));
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n",
        "x: y\r\n".repeat(Limits::default().field_lines() as usize)
    );
    for response in [long, many] {
        let answer = told(Method::GET, &response);
        assert!(matches!(answer, Err(Error::HeadTooLarge(_))), "{answer:?}");
    }
}

#[test]
fn malformed_http1_response_is_not_retryable() {
    for response in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nna me: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        // Codings that the client did not ask for are not decoded.
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ntransfer-encoding: \
            chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ] {
        let answer = told(Method::GET, response);
        assert!(
            matches!(answer, Err(Error::Exchange(_))),
            "{:?}: {answer:?}",
            &response[..response.len().min(80)]
        );
    }
}

#[test]
fn length_of_a_chunked_response_does_not_count() {
    let response = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: \
        Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(told(Method::GET, response).unwrap(), (StatusCode::OK, None, Bytes::from("hello")));
}

#[test]
fn second_response_to_one_request_is_not_that_to_the_next() {
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let mut connection = server.connect(&mut bench, Protocol::Http1);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let seen = answers.clone();
    bench.client.handle().spawn(async move {
        for _ in 0..2 {
            let answer = match connection.send(ask("/")).await {
                Ok(response) => Ok(response.into_body().collect().await.unwrap().to_bytes()),
                Err(error) => Err(error),
            };
            seen.borrow_mut().push(answer);
        }
    });
    bench.turn_until(|_| {
        server.step();
        !server.received.is_empty()
    });
    let response = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
    server.send(format!("{response}ok{response}no"));
    bench.turn_until(|_| answers.borrow().len() == 2);
    let answers = answers.take();
    assert!(matches!(&answers[0], Ok(content) if content == "ok"), "{answers:?}");
    assert!(matches!(&answers[1], Err(Error::Refused(_))), "{answers:?}");
}

#[test]
fn http1_response_is_read_though_its_server_closes_with_an_upload_unread() {
    for closes in ["", "connection: close\r\n"] {
        let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
        let connection = server.connect(&mut bench, Protocol::Http1);
        // More than the sockets buffer.
        let answer = begin(&bench, connection, post(Body::from(vec![b'x'; 32 << 20])));
        for _ in 0..100 {
            bench.turn();
        }
        assert!(answer.borrow().is_none());
        server.send(format!(
            "HTTP/1.1 413 Content Too Large\r\n{closes}content-length: 3\r\n\r\nbig"
        ));
        // The system resets a connection that is closed with unread bytes.
        server.close();
        bench.turn_until(|_| answer.borrow().is_some());
        let answer = answer.take().unwrap();
        assert_eq!(
            answer.unwrap(),
            (StatusCode::PAYLOAD_TOO_LARGE, Some("3".to_owned()), Bytes::from("big"))
        );
    }
}

#[test]
fn http1_upload_that_is_answered_goes_on_to_its_end() {
    const SIZE: usize = 8 << 20;
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let connection = server.connect(&mut bench, Protocol::Http1);
    let answer = begin(&bench, connection, post(Body::from(vec![b'x'; SIZE])));
    bench.turn();
    server.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly");
    bench.turn_until(|_| answer.borrow().is_some());
    assert_eq!(answer.take().unwrap().unwrap().2, "early");
    bench.turn_until(|_| {
        server.step();
        server.received.len() > SIZE
    });
}

/// Returns the client's result when an HTTP/2 server sends these frames on stream 1 and closes the
/// connection.
fn told_http2(frames: &[Vec<u8>]) -> Answer {
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let connection = server.connect(&mut bench, Protocol::Http2);
    server.send(settings(&[]));
    let answer = begin(&bench, connection, ask("/"));
    bench.turn_until(|_| server.requests() == [1]);
    for bytes in frames {
        // The client may refuse the head before it has all of it.
        server.try_send(bytes);
        for _ in 0..20 {
            bench.turn();
        }
    }
    server.close();
    bench.turn_until(|_| answer.borrow().is_some());
    answer.take().unwrap()
}

fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

fn reset(code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, 1, &code.to_be_bytes())
}

#[test]
fn http2_request_is_to_be_sent_again_where_the_server_says_so_and_nowhere_else() {
    let ok = || head(1, &[(":status", "200")], false);
    for (frames, refused) in [
        (vec![reset(REFUSED_STREAM)], true),
        (vec![go_away(0, 0)], true),
        // The server may have processed the request.
        (vec![go_away(1, 0)], false),
        (vec![go_away((1 << 31) - 1, 0), go_away(1, 0)], false),
        (vec![go_away(1, 2)], false),
        (vec![reset(2)], false),
        (vec![], false),
        // The response has begun, so the request was processed.
        (vec![ok(), reset(REFUSED_STREAM)], false),
        (vec![ok(), go_away(0, 0)], false),
    ] {
        let answer = told_http2(&frames);
        assert!(
            answer.is_err() && matches!(answer, Err(Error::Refused(_))) == refused,
            "{frames:?}: {answer:?}"
        );
    }
}

#[test]
fn http2_response_that_ends_early_is_not_taken_for_complete() {
    let lengthy = || head(1, &[(":status", "200"), ("content-length", "10")], false);
    let data = |ends| frame(0, ends, 1, b"short");
    for frames in [
        vec![lengthy(), data(1)],
        vec![lengthy(), data(0)],
        vec![lengthy(), data(0), reset(0)],
        vec![lengthy(), data(0), head(1, &[("a", "b")], true)],
        vec![head(1, &[(":status", "200"), ("content-length", "10")], true)],
        vec![head(1, &[(":status", "103")], true)],
    ] {
        let answer = told_http2(&frames);
        assert!(
            answer.is_err() && !matches!(answer, Err(Error::Refused(_))),
            "{frames:?}: {answer:?}"
        );
    }
    let answer = told_http2(&[lengthy(), data(0), data(1), reset(0)]);
    assert_eq!(answer.unwrap().2, "shortshort");
}

#[test]
fn http2_head_that_is_too_large_fails_its_request_alone() {
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let connection = server.connect(&mut bench, Protocol::Http2);
    server.send(settings(&[]));
    let (large, small) = (connection.share().unwrap(), connection.share().unwrap());
    let large = begin(&bench, large, ask("/large"));
    bench.turn_until(|_| server.requests() == [1]);
    server.send(head(1, &[(":status", "200"), ("x", &"x".repeat(70_000))], true));
    bench.turn_until(|_| large.borrow().is_some());
    let answer = large.take().unwrap();
    assert!(matches!(answer, Err(Error::Exchange(_))), "{answer:?}");
    let small = begin(&bench, small, ask("/small"));
    bench.turn_until(|_| server.requests() == [1, 3]);
    server.send(head(3, &[(":status", "204"), ("x", &"x".repeat(60_000))], true));
    bench.turn_until(|_| small.borrow().is_some());
    assert_eq!(small.take().unwrap().unwrap().0, StatusCode::NO_CONTENT);
}

#[test]
fn interim_responses_are_handed_over_but_no_change_of_protocol() {
    let http1 = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: \
        x\r\n\r\nHTTP/1.1 \
        204 No Content\r\n\r\n";
    let of = |status| head(1, &[(":status", status)], status == "204");
    let http2 = [of("100"), of("101"), of("103"), of("204")].concat();
    for (protocol, response) in [(Protocol::Http1, http1.as_bytes()), (Protocol::Http2, &http2)] {
        let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
        let mut connection = server.connect(&mut bench, protocol);
        if protocol == Protocol::Http2 {
            server.send(settings(&[]));
        }
        let interim = Rc::new(RefCell::new(Vec::new()));
        let (seen, last) = (interim.clone(), Rc::new(RefCell::new(None)));
        let slot = last.clone();
        bench.client.handle().spawn(async move {
            let mut note = |status: StatusCode, _| seen.borrow_mut().push(status.as_u16());
            let sent = connection.send(ClientRequest::new(ask("/")).on_interim(&mut note)).await;
            *slot.borrow_mut() = Some(sent.map(|response| response.status()));
        });
        bench.turn_until(|_| {
            server.step();
            server.received.ends_with(b"\r\n\r\n") || server.requests() == [1]
        });
        server.send(response);
        bench.turn_until(|_| last.borrow().is_some());
        assert_eq!(last.take().unwrap().unwrap(), StatusCode::NO_CONTENT, "{protocol}");
        assert_eq!(*interim.borrow(), [100, 103], "{protocol}");
    }
}

#[test]
fn each_request_of_a_connection_is_told_its_own_interim_responses_and_when_they_come() {
    let (mut bench, mut server) = (Bench::new(1, &Config::default(), hello), RawServer::new());
    let mut connection = server.connect(&mut bench, Protocol::Http1);
    let (seen, answered) =
        (Rc::<RefCell<Vec<String>>>::default(), Rc::<RefCell<Vec<u16>>>::default());
    let (notes, answers) = (seen.clone(), answered.clone());
    bench.client.handle().spawn(async move {
        for number in 0..3 {
            let mut on_interim = |_, headers: HeaderMap| {
                notes.borrow_mut().push(format!("{number} {:?}", headers["link"]));
            };
            let sent = if number == 1 {
                connection.send(ask("/")).await
            } else {
                connection.send(ClientRequest::new(ask("/")).on_interim(&mut on_interim)).await
            };
            answers.borrow_mut().push(sent.unwrap().status().as_u16());
        }
    });
    for (number, told) in
        [vec!["0 \"0\""], vec!["0 \"0\""], vec!["0 \"0\"", "2 \"2\""]].into_iter().enumerate()
    {
        bench.turn_until(|_| {
            server.step();
            server.received.ends_with(b"\r\n\r\n")
        });
        server.received.clear();
        server.send(format!("HTTP/1.1 103 Early Hints\r\nlink: {number}\r\n\r\n").as_bytes());
        // The one without a listener gets nothing before its response.
        bench.turn_until(|_| number == 1 || seen.borrow().len() == told.len());
        assert_eq!(answered.borrow().len(), number);
        server.send(b"HTTP/1.1 204 No Content\r\n\r\n");
        bench.turn_until(|_| answered.borrow().len() == number + 1);
        assert_eq!(*seen.borrow(), told);
    }
}
