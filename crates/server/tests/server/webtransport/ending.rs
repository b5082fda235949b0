//! How streams and sessions end.

use std::time::Duration;

use bytes::Bytes;
use pronghorn_server::Limits;
use pronghorn_server::webtransport::{DatagramError, SessionEnd, SessionStreamError};

use super::{elsewhere, read_to_end, sessions, site, to, with_connection};

#[test]
fn reset_and_stop_codes_arrive_in_both_directions() {
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let (mut send, mut receive) = client.open_bi().await.unwrap();
        send.write("begun").await.unwrap();
        let (mut their_send, mut their_receive) = server.accept_bi().await.unwrap();
        their_send.write("begun").await.unwrap();
        assert_eq!(their_receive.read().await.unwrap().unwrap(), "begun");
        assert_eq!(receive.read().await.unwrap().unwrap(), "begun");
        send.reset(5);
        assert_eq!(their_receive.read().await, Err(SessionStreamError::Reset { code: Some(5) }));
        assert_eq!(
            their_receive.read().await,
            Err(SessionStreamError::Reset { code: Some(5) }),
            "second read"
        );
        receive.stop(6);
        let stopped = SessionStreamError::Stopped { code: Some(6) };
        assert_eq!(their_send.stopped().await, stopped);
        assert_eq!(their_send.write("more").await, Err(stopped));

        let (mut send, mut receive) = client.open_bi().await.unwrap();
        send.write("begun").await.unwrap();
        let (mut their_send, mut their_receive) = server.accept_bi().await.unwrap();
        their_send.write("begun").await.unwrap();
        receive.read().await.unwrap().unwrap();
        their_receive.read().await.unwrap().unwrap();
        their_send.reset(7);
        assert_eq!(receive.read().await, Err(SessionStreamError::Reset { code: Some(7) }));
        their_receive.stop(8);
        assert_eq!(send.stopped().await, SessionStreamError::Stopped { code: Some(8) });

        // Dropping ends both directions with code 0.
        let (mut send, mut receive) = client.open_bi().await.unwrap();
        send.write("begun").await.unwrap();
        let (mut their_send, mut their_receive) = server.accept_bi().await.unwrap();
        their_send.write("begun").await.unwrap();
        receive.read().await.unwrap().unwrap();
        their_receive.read().await.unwrap().unwrap();
        drop((their_send, their_receive));
        assert_eq!(receive.read().await, Err(SessionStreamError::Reset { code: Some(0) }));
        assert_eq!(send.stopped().await, SessionStreamError::Stopped { code: Some(0) });
    });
}

#[test]
fn write_to_a_stopped_stream_fails() {
    // The application and the worker run in parallel, so not every stream hits the race.
    const STREAMS: u32 = 2000;
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let application = elsewhere(async move {
            for code in 0..STREAMS {
                let mut stream = server.open_uni().await.unwrap();
                let stopped = SessionStreamError::Stopped { code: Some(code) };
                assert_eq!(stream.stopped().await, stopped);
                assert_eq!(stream.write("more").await, Err(stopped));
            }
        });
        let stop = async {
            for code in 0..STREAMS {
                client.accept_uni().await.unwrap().stop(code);
            }
        };
        tokio::join!(application, stop);
    });
}

#[test]
fn close_delivers_code_and_reason_to_the_peer() {
    for closed_by_client in [true, false] {
        let (site, mut accepted) = site(Limits::default());
        with_connection(to(&site), async move |mut connection| {
            let (client, server) = sessions(&mut connection, &mut accepted).await;
            let (mut send, _receive) = client.open_bi().await.unwrap();
            send.write("hello").await.unwrap();
            let (mut their_send, their_receive) = server.accept_bi().await.unwrap();
            let (here, there) = if closed_by_client {
                client.close(4_000_000_000, "that is it");
                (client.closed().await, server.closed().await)
            } else {
                server.close(4_000_000_000, "that is it");
                (server.closed().await, client.closed().await)
            };
            let reason = || "that is it".to_owned();
            assert_eq!(here, SessionEnd::Local { code: 4_000_000_000, reason: reason() });
            assert_eq!(there, SessionEnd::Peer { code: 4_000_000_000, reason: reason() });
            let end = if closed_by_client { there } else { here };
            assert_eq!(server.accept_bi().await.err(), Some(end.clone()));
            assert_eq!(server.read_datagram().await.err(), Some(end.clone()));
            assert_eq!(server.send_datagram("late"), Err(DatagramError::Ended(end)));
            assert_eq!(server.open_uni().await.err(), Some(SessionStreamError::SessionEnded));
            assert_eq!(server.open_bi().await.err(), Some(SessionStreamError::SessionEnded));
            // The client's streams may report the end first.
            let stopped = their_send.stopped().await;
            assert!(
                matches!(
                    stopped,
                    SessionStreamError::SessionEnded | SessionStreamError::Stopped { code: None }
                ),
                "{stopped:?}"
            );
            let late = read_to_end(their_receive).await;
            assert!(
                matches!(
                    late,
                    Err(SessionStreamError::SessionEnded | SessionStreamError::Reset { code: None })
                ),
                "{late:?}"
            );
        });
    }
}

#[test]
fn dropping_the_last_handle_closes_the_session() {
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let other = server.clone();
        drop(server);
        client.send_datagram("still there?").unwrap();
        assert_eq!(other.read_datagram().await.unwrap(), "still there?");
        drop(other);
        assert_eq!(client.closed().await, SessionEnd::Peer { code: 0, reason: String::new() });
    });
}

#[test]
fn shutdown_drains_sessions_and_waits_for_them() {
    let (site, mut accepted) = site(Limits::default());
    let handle = site.handle();
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let elsewhere = elsewhere(async move {
            server.draining().await;
            server.send_datagram("one more").unwrap();
            server.close(9, "we end");
            server.closed().await
        });
        handle.shut_down(Duration::from_secs(30));
        let (end, datagram) = tokio::join!(elsewhere, client.closed());
        assert_eq!(end, SessionEnd::Local { code: 9, reason: "we end".to_owned() });
        assert_eq!(datagram, SessionEnd::Peer { code: 9, reason: "we end".to_owned() });
    });
}

#[test]
fn session_ends_when_its_server_is_dropped() {
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let (mut send, _receive) = client.open_bi().await.unwrap();
        send.write("hello").await.unwrap();
        let (mut their_send, mut their_receive) = server.accept_bi().await.unwrap();
        their_receive.read().await.unwrap();
        drop(site);
        assert!(matches!(server.closed().await, SessionEnd::Lost(_)));
        assert_eq!(their_receive.read().await, Err(SessionStreamError::SessionEnded));
        assert_eq!(their_send.stopped().await, SessionStreamError::SessionEnded);
        assert!(server.accept_uni().await.is_err());
        assert!(server.open_uni().await.is_err());
        // The worker is gone; closing must not fail.
        server.close(1, "late");
        let _: Result<(), DatagramError> = server.send_datagram(Bytes::from_static(b"late"));
        server.draining().await;
    });
}
