//! Streams and datagrams in both directions, and backpressure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::any;
use http::{HeaderMap, StatusCode};
use pronghorn_engine as engine;
use pronghorn_server::webtransport::{DatagramError, SendStream};
use pronghorn_server::{Limits, WebTransportUpgrade};
use tokio::sync::mpsc;

use super::{
    content, elsewhere, engine_read_to_end, hello, read_to_end, sessions, site, to, uri,
    with_connection,
};
use crate::support::Site;

#[test]
fn streams_of_both_kinds_carry_content_both_ways_from_any_thread() {
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let sent = content(300_000);
        let (expected, echo) = (sent.clone(), server.clone());
        let served = elsewhere(async move {
            let (mut send, receive) = echo.accept_bi().await.unwrap();
            send.write(read_to_end(receive).await.unwrap()).await.unwrap();
            send.finish();
            let mut one_way = echo.open_uni().await.unwrap();
            one_way.write("one way").await.unwrap();
            one_way.finish();
            let (mut send, receive) = echo.open_bi().await.unwrap();
            send.write("who?").await.unwrap();
            send.finish();
            let answer = read_to_end(receive).await.unwrap();
            (answer, read_to_end(echo.accept_uni().await.unwrap()).await.unwrap())
        });
        let asked = async {
            let (mut send, receive) = client.open_bi().await.unwrap();
            send.write(sent).await.unwrap();
            send.finish();
            assert!(engine_read_to_end(receive).await.unwrap() == expected);
            assert_eq!(
                engine_read_to_end(client.accept_uni().await.unwrap()).await.unwrap(),
                b"one way"
            );
            let (mut send, receive) = client.accept_bi().await.unwrap();
            assert_eq!(engine_read_to_end(receive).await.unwrap(), b"who?");
            send.write("me").await.unwrap();
            send.finish();
            let mut one_way = client.open_uni().await.unwrap();
            one_way.write("and so on").await.unwrap();
            one_way.finish();
        };
        let (served, ()) = tokio::join!(served, asked);
        assert_eq!((&served.0[..], &served.1[..]), (&b"me"[..], &b"and so on"[..]));
        drop(server);
    });
}

#[test]
fn datagrams_arrive_and_oversized_ones_are_refused() {
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        client.send_datagram("from the client").unwrap();
        let server = elsewhere(async move {
            assert_eq!(server.read_datagram().await.unwrap(), "from the client");
            let most = server.max_datagram_size().unwrap();
            server.send_datagram(content(most)).unwrap();
            assert!(matches!(
                server.send_datagram(content(most + 5000)),
                Err(DatagramError::TooLarge { .. })
            ));
            server
        })
        .await;
        assert!(client.read_datagram().await.unwrap().len() > 1000);
        drop(server);
    });
}

#[test]
fn datagram_sent_immediately_arrives() {
    let enter = async |upgrade: WebTransportUpgrade| {
        upgrade.on_session(async |session| {
            session.send_datagram("welcome").unwrap();
            session.closed().await;
        })
    };
    let app = Router::new().route("/", any(enter));
    let site = Site::with(|server| server.webtransport().start(app).unwrap());
    with_connection(to(&site), async move |mut connection| {
        let client = engine::WebTransport::connect(&mut connection, uri("/"), HeaderMap::new())
            .await
            .unwrap();
        assert_eq!(client.read_datagram().await.unwrap(), "welcome");
    });
}

#[test]
fn cancelled_wait_loses_neither_stream_nor_datagram() {
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        for number in 0..50_u8 {
            let mut stream = client.open_uni().await.unwrap();
            stream.write(vec![number]).await.unwrap();
            stream.finish();
            client.send_datagram(vec![number]).unwrap();
        }
        elsewhere(async move {
            // Each completed branch drops the futures of the others.
            let (mut streams, mut datagrams) = (Vec::new(), Vec::new());
            while streams.len() + datagrams.len() < 100 {
                tokio::select! {
                    stream = server.accept_uni() => streams.push(stream.unwrap()),
                    datagram = server.read_datagram() => datagrams.push(datagram.unwrap()[0]),
                    () = std::future::ready(()) => tokio::task::yield_now().await,
                }
            }
            let mut contents = Vec::new();
            for stream in streams {
                contents.extend(read_to_end(stream).await.unwrap());
            }
            for mut numbers in [contents, datagrams] {
                numbers.sort_unstable();
                assert_eq!(numbers, (0..50).collect::<Vec<_>>());
            }
        })
        .await;
    });
}

#[test]
fn stalled_reader_applies_backpressure_to_the_writer() {
    const PIECE_BYTES: usize = 60 << 10;
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let (count, mut written) = mpsc::unbounded_channel();
        let writer = tokio::spawn(async move {
            let mut stream = server.open_uni().await.unwrap();
            while stream.write(vec![0; PIECE_BYTES]).await.is_ok() {
                count.send(()).unwrap();
            }
            drop(count);
            server
        });
        let mut receive = client.accept_uni().await.unwrap();
        receive.read().await.unwrap().unwrap();
        // Data sent meanwhile shows that time has passed.
        let mut bytes = 0_usize;
        for _ in 0..20 {
            assert_eq!(hello(&mut connection).await, StatusCode::OK);
            while written.try_recv().is_ok() {
                bytes += PIECE_BYTES;
            }
        }
        assert!((1..64 << 20).contains(&bytes), "{bytes}");
        // The stream ends when the client stops it.
        receive.stop(3);
        drop(writer.await.unwrap());
    });
}

#[test]
fn application_that_does_not_read_applies_backpressure_to_the_client() {
    const PIECE_BYTES: usize = 60 << 10;
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let (mut send, _receive) = client.open_bi().await.unwrap();
        send.write("begun").await.unwrap();
        let (_their_send, mut their_receive) = server.accept_bi().await.unwrap();
        assert_eq!(their_receive.read().await.unwrap().unwrap(), "begun");
        let written = Arc::new(AtomicUsize::new(0));
        let counted = written.clone();
        client.handle().spawn(async move {
            while send.write(vec![0; PIECE_BYTES]).await.is_ok() {
                counted.fetch_add(PIECE_BYTES, Ordering::Relaxed);
            }
        });
        for _ in 0..20 {
            assert_eq!(hello(&mut connection).await, StatusCode::OK);
        }
        let bytes = written.load(Ordering::Relaxed);
        assert!((1..64 << 20).contains(&bytes), "{bytes}");
    });
}

#[test]
fn cancelled_open_does_not_count_against_the_stream_limit() {
    // The stream limit of the engine's client.
    let most = Limits::default().webtransport_streams();
    let (site, mut accepted) = site(Limits::default());
    with_connection(to(&site), async move |mut connection| {
        let (client, server) = sessions(&mut connection, &mut accepted).await;
        let mut open: Vec<SendStream> = Vec::new();
        for _ in 0..most {
            let (mut send, _) = server.open_bi().await.unwrap();
            send.write("begun").await.unwrap();
            open.push(send);
        }
        let others = async {
            for _ in 0..5 {
                assert_eq!(hello(&mut connection).await, StatusCode::OK);
            }
        };
        tokio::select! {
            more = server.open_bi() => panic!("{more:?}"),
            () = others => {}
        }
        open.into_iter().for_each(SendStream::finish);
        for _ in 0..most {
            drop(client.accept_bi().await.unwrap());
        }
        // The abandoned stream does not count against the limit.
        server.open_bi().await.unwrap();
    });
}
