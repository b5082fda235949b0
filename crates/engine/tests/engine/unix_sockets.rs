//! Connections to servers on Unix sockets.

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use pronghorn_engine::{Config, Error, Protocol};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::support::{Bench, hello};

/// A path of its own, which is gone at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("pronghorn-{}-{name}.sock", std::process::id())))
    }

    fn path(&self) -> Arc<Path> {
        self.0.as_path().into()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn bench() -> Bench {
    Bench::new(1, &Config::default(), hello)
}

#[test]
fn full_queue_of_a_server_is_waited_for() {
    let place = Place::new("full");
    let address = SockAddr::unix(&place.0).unwrap();
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    listener.bind(&address).unwrap();
    listener.listen(0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
        match socket.connect(&address) {
            Ok(()) => waiting.push(socket),
            Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(waiting.len() < 16, "the queue has no end");
    }
    let mut bench = bench();
    let (connector, path) = (bench.connector.clone(), place.path());
    let is_open = bench.run(async move {
        let mut opening = pin!(connector.open_unix(&path));
        let is_waiting = poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx).is_pending())).await;
        assert!(is_waiting, "there is no room yet");
        listener.accept().unwrap();
        opening.await.is_ok()
    });
    assert!(is_open);
}

#[test]
fn missing_socket_is_told_with_its_path() {
    let place = Place::new("missing");
    let mut bench = bench();
    let (connector, path) = (bench.connector.clone(), place.path());
    let error = bench.run(async move { connector.connect_unix(&path, Protocol::Http1).await.err() });
    let error = error.expect("nobody listens");
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("cannot connect to unix:{}: ", place.0.display())), "{error}");
}

#[test]
fn http3_is_not_spoken_over_unix_sockets() {
    let mut bench = bench();
    let (connector, path) = (bench.connector.clone(), Place::new("http3").path());
    let error = bench.run(async move { connector.connect_unix(&path, Protocol::Http3).await.err() });
    assert!(matches!(error, Some(Error::Unsupported(Protocol::Http3))), "{error:?}");
}
