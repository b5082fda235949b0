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

/// A unique path, which is removed at the end.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("pronghorn-{}-{name}.sock", std::process::id())))
    }

    fn path(&self) -> Arc<Path> {
        self.0.as_path().into()
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn bench() -> Bench {
    Bench::new(1, &Config::default(), hello)
}

#[test]
fn connect_waits_for_a_full_listen_queue() {
    let place = SocketPath::new("full");
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
        assert!(waiting.len() < 16, "the listen queue is never full");
    }
    let mut bench = bench();
    let (connector, path) = (bench.connector.clone(), place.path());
    let is_open = bench.run(async move {
        let mut opening = pin!(connector.open_unix(&path));
        let is_waiting = poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx).is_pending())).await;
        assert!(is_waiting, "the queue is still full");
        listener.accept().unwrap();
        opening.await.is_ok()
    });
    assert!(is_open);
}

#[test]
fn missing_socket_is_told_with_its_path() {
    let place = SocketPath::new("missing");
    let mut bench = bench();
    let (connector, path) = (bench.connector.clone(), place.path());
    let error =
        bench.run(async move { connector.connect_unix(&path, Protocol::Http1).await.err() });
    let error = error.expect("nobody listens");
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(
        error.to_string().starts_with(&format!("cannot connect to unix:{}: ", place.0.display())),
        "{error}"
    );
}

#[test]
fn http3_is_not_spoken_over_unix_sockets() {
    let mut bench = bench();
    let (connector, path) = (bench.connector.clone(), SocketPath::new("http3").path());
    let error =
        bench.run(async move { connector.connect_unix(&path, Protocol::Http3).await.err() });
    assert!(matches!(error, Some(Error::Unsupported(Protocol::Http3))), "{error:?}");
}
