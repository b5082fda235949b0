//! Upgrades over HTTP/1.1, byte by byte.

use super::*;

const ASK: &str = "GET /tunnel HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, \
    Upgrade\r\nupgrade: Echo\r\n";

/// A server that accepts upgrades at `/tunnel`, and a client that sends any bytes over HTTP/1.1.
fn raw(side: &Side) -> (Bench, RawTls) {
    let trust = trust();
    let mut bench =
        Bench::with_group(&Group::new(1), &trust, &Config::default(), granting(side, false));
    let raw = RawTls::connect(&mut bench, &trust, b"http/1.1");
    (bench, raw)
}

fn answer(bench: &mut Bench, raw: &mut RawTls, ending: &str) -> String {
    bench.turn_until(|_| {
        raw.step();
        raw.received.ends_with(ending.as_bytes()) || raw.is_closed
    });
    String::from_utf8(std::mem::take(&mut raw.received)).unwrap()
}

#[test]
fn bytes_sent_with_the_head_are_the_first_of_the_tunnel() {
    // None of these bytes is valid in a head.
    let early = "\n\0early\r\r\n";
    for cut in 0..=early.len() {
        let side = Side::default();
        let (mut bench, mut raw) = raw(&side);
        raw.send(format!("{ASK}\r\n{}", &early[..cut]).as_bytes());
        let head = answer(&mut bench, &mut raw, "\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
        assert!(
            head.contains("connection: upgrade\r\n") && head.contains("upgrade: echo\r\n"),
            "{head}"
        );
        assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
        raw.send(&early.as_bytes()[cut..]);
        bench.turn_until(|_| side.received.len() == early.len());
        assert_eq!(side.received.text(), early);
        side.outgoing.push("HTTP/1.1 is over\n");
        assert_eq!(answer(&mut bench, &mut raw, "\n"), "HTTP/1.1 is over\n");
    }
}

#[test]
fn request_before_the_one_that_asks_is_answered_first() {
    let side = Side::default();
    let (mut bench, mut raw) = raw(&side);
    raw.send(format!("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n{ASK}\r\n\n\nearly").as_bytes());
    side.outgoing.push("then\n");
    let text = answer(&mut bench, &mut raw, "then\n");
    let (first, second) = text.split_once("hello").unwrap();
    assert!(first.starts_with("HTTP/1.1 200") && second.starts_with("HTTP/1.1 101"), "{text}");
    bench.turn_until(|_| side.received.len() == 7);
    assert_eq!(side.received.text(), "\n\nearly");
}

#[test]
fn request_after_refused_one_is_served() {
    let side = Side::default();
    let (mut bench, mut raw) = raw(&side);
    let refused = ASK.replace("/tunnel", "/other");
    raw.send(
        format!(
            "{refused}\r\n{refused}\r\nGET / HTTP/1.1\r\nhost: localhost\r\nconnection: \
        close\r\n\r\n"
        )
        .as_bytes(),
    );
    raw.wait_for_close(&mut bench);
    let text = String::from_utf8(raw.received).unwrap();
    assert_eq!(
        (text.matches("HTTP/1.1 200").count(), text.matches("hello").count()),
        (3, 3),
        "{text}"
    );
}

#[test]
fn head_after_refused_request_is_validated() {
    let side = Side::default();
    let (mut bench, mut raw) = raw(&side);
    raw.send(
        format!("{}\r\nGET / HTTP/1.1\nhost: localhost\r\n\r\n", ASK.replace("/tunnel", "/other"))
            .as_bytes(),
    );
    raw.wait_for_close(&mut bench);
    let text = String::from_utf8(raw.received).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("HTTP/1.1 400"), "{text}");
}

#[test]
fn http1_requests_that_cannot_upgrade_are_ordinary() {
    let ask = |head: &str, rest: &str| format!("{head}\r\nhost: localhost\r\n{rest}\r\n");
    let upgrade = "connection: upgrade\r\nupgrade: echo\r\n";
    for (request, status) in [
        (ask("GET /tunnel HTTP/1.0", upgrade), "200"),
        (ask("POST /tunnel HTTP/1.1", upgrade), "200"),
        (ask("HEAD /tunnel HTTP/1.1", upgrade), "200"),
        (ask("GET /tunnel HTTP/1.1", &format!("{upgrade}content-length: 2\r\n")) + "xx", "200"),
        (
            ask("GET /tunnel HTTP/1.1", &format!("{upgrade}transfer-encoding: chunked\r\n"))
                + "2\r\nxx\r\n0\r\n\r\n",
            "200",
        ),
        (ask("GET /tunnel HTTP/1.1", "upgrade: echo\r\n"), "200"),
        (ask("GET /tunnel HTTP/1.1", "connection: upgrade\r\n"), "200"),
    ] {
        let side = Side::default();
        let (mut bench, mut raw) = raw(&side);
        raw.send(
            (request.clone() + "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        );
        raw.wait_for_close(&mut bench);
        let text = String::from_utf8(raw.received).unwrap();
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status}"))
                || text.starts_with(&format!("HTTP/1.0 {status}")),
            "{request}: {text}"
        );
        // HTTP/1.0 closes after one response, and so does a request with unread chunks.
        let answers =
            if request.contains("HTTP/1.0") || request.contains("chunked") { 1 } else { 2 };
        assert_eq!(text.matches(" 200 OK").count(), answers, "{request}: {text}");
        assert!(side.asked.borrow().is_none(), "{request}");
    }
}

#[test]
fn client_that_leaves_while_the_handler_decides_is_noticed() {
    let left = Rc::new(Cell::new(false));
    let (trust, mark) = (trust(), left.clone());
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), move |_| {
        let mark = mark.clone();
        move |_, mut responder: Responder| {
            let mark = mark.clone();
            responder.handle().clone().spawn(async move {
                std::future::poll_fn(|cx| responder.poll_closed(cx)).await;
                mark.set(true);
            });
        }
    });
    let mut raw = RawTls::connect(&mut bench, &trust, b"http/1.1");
    raw.send(format!("{ASK}\r\n").as_bytes());
    turns(&mut bench, 50);
    assert!(!left.get());
    drop(raw);
    bench.turn_until(|_| left.get());
}
