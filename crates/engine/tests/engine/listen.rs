//! Properties of a listener's sockets.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use pronghorn_engine::{Congestion, Listener};
use socket2::SockRef;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn kernel_name(socket: &TcpStream) -> String {
    let name = SockRef::from(socket).tcp_congestion().unwrap();
    String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
}

#[test]
fn tcp_congestion_that_was_asked_for_is_what_the_socket_has() {
    // Every kernel has Reno and allows it to every user.
    let listener = Listener::clear(ANY_PORT, 2, Some(Congestion::NewReno)).unwrap();
    assert_eq!(listener.tcp_congestion().unwrap(), "reno");
}

#[test]
fn tcp_congestion_stays_the_systems_when_none_is_asked_for() {
    let listener = Listener::secure(ANY_PORT, 1, None).unwrap();
    let other = TcpStream::connect(listener.address()).unwrap();
    assert_eq!(listener.tcp_congestion().unwrap(), kernel_name(&other));
}

#[test]
fn udp_buffers_that_were_asked_for_are_granted_or_reported() {
    let listener = Listener::secure(ANY_PORT, 2, None).unwrap();
    let small = listener.set_udp_buffers(100_000).unwrap().unwrap();
    assert_eq!((small.receive, small.send), (100_000, 100_000));
    assert_eq!(small.sysctls_to_raise().count(), 0);
    // More than any system allows, and more than the kernel grants even to privileged users.
    let large = listener.set_udp_buffers(i32::MAX as usize).unwrap().unwrap();
    let lacking: Vec<_> = large.sysctls_to_raise().collect();
    assert_eq!(lacking, ["net.core.rmem_max", "net.core.wmem_max"], "{large:?}");
}

#[test]
fn listener_without_udp_has_no_buffers_to_size() {
    let listener = Listener::clear(ANY_PORT, 1, None).unwrap();
    assert_eq!(listener.set_udp_buffers(100_000).unwrap(), None);
}
