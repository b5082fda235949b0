//! Datagrams that arrive at the wrong worker.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Bench, fetch, get, hello};
use http::StatusCode;
use pronghorn_engine::{Config, Protocol};

/// With this many source ports the kernel assigns some to either worker, except for a chance in a
/// million.
const PORTS: usize = 20;

/// Forwards datagrams between one client and `server`, from a source port that the test chooses,
/// like a NAT that rebinds.
pub(crate) struct Rebinding {
    pub(crate) inside: Arc<UdpSocket>,
    pub(crate) outside: Vec<Arc<UdpSocket>>,
    pub(crate) port: Arc<AtomicUsize>,
}

impl Rebinding {
    pub(crate) fn new(server: std::net::SocketAddr) -> Self {
        let inside = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let outside: Vec<_> = (0..PORTS)
            .map(|_| Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()))
            .collect();
        let port = Arc::<AtomicUsize>::default();
        let client = Arc::new(std::sync::OnceLock::new());
        for socket in &outside {
            let (socket, inside, client) = (socket.clone(), inside.clone(), client.clone());
            pass(socket, move |datagram| {
                if let Some(client) = client.get() {
                    drop(inside.send_to(datagram, client));
                }
            });
        }
        let (receiver, senders, chosen) = (inside.clone(), outside.clone(), port.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            while let Ok((length, from)) = receiver.recv_from(&mut buffer) {
                client.get_or_init(|| from);
                drop(senders[chosen.load(Ordering::Relaxed)].send_to(&buffer[..length], server));
            }
        });
        Self { inside, outside, port }
    }
}

fn pass(socket: Arc<UdpSocket>, send: impl Fn(&[u8]) + Send + 'static) {
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        while let Ok((length, _)) = socket.recv_from(&mut buffer) {
            send(&buffer[..length]);
        }
    });
}

#[test]
fn connection_survives_a_rebinding_to_another_worker() {
    let mut bench = Bench::new(2, &Config::default(), hello);
    let nat = Rebinding::new(bench.address);
    let mut connection = bench.connect_to(Protocol::Http3, nat.inside.local_addr().unwrap());
    for port in 0..nat.outside.len() {
        nat.port.store(port, Ordering::Relaxed);
        let (answer, back) =
            bench.run(async move { (fetch(&mut connection, get("/")).await, connection) });
        assert_eq!(answer, Ok((StatusCode::OK, "hello".into())), "from port {port}");
        connection = back;
    }
    assert!(
        bench.count(|stats| stats.strays_passed_on.value()) > 0,
        "every port led to the same worker"
    );
    assert_eq!(bench.count(|stats| stats.quic_accepted.value()), 1);
    assert_eq!(bench.count(|stats| stats.strays_dropped.value()), 0);
}
