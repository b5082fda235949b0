//! WebSocket over the three protocols: messages both ways, closing, refusals, and peers that do not
//! read or have vanished.

mod pace;
mod refusals;
mod time;

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use http::{HeaderMap, Uri};
use pronghorn_engine::websocket::{
    self, CloseCode, CloseReason, Error, Message, Options, ProtocolError, Sender, WebSocket,
    WebSocketUpgrade, deflate,
};
use pronghorn_engine::{Config, Connection, Limits, Protocol, Request as EngineRequest, Responder};

use crate::support::{Bench, PROTOCOLS};

type Answering = Box<dyn Fn(EngineRequest, Responder)>;
/// Results of the server's connections, and their close codes.
type Ends = Rc<RefCell<Vec<(Result<(), Error>, Option<u16>)>>>;

/// Echoes messages.
fn echo(options: &Options, ends: &Ends) -> impl Fn(usize) -> Answering + use<> {
    serving(options, ends, |mut socket, ends| async move {
        let end = loop {
            match socket.recv().await {
                Some(Ok(message)) => match socket.send(message).await {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                Some(Err(error)) => break Err(error),
                None => break Ok(()),
            }
        };
        ends.borrow_mut().push((end, socket.reason().map(|reason| reason.code.number())));
    })
}

fn serving<F, S>(
    options: &Options,
    ends: &Ends,
    serve: S,
) -> impl Fn(usize) -> Answering + use<F, S>
where
    F: Future<Output = ()> + 'static,
    S: Fn(WebSocket, Ends) -> F + Clone + 'static,
{
    let (options, ends) = (options.clone(), ends.clone());
    move |_| {
        let (options, ends, serve) = (options.clone(), ends.clone(), serve.clone());
        Box::new(move |request: EngineRequest, responder: Responder| {
            match WebSocketUpgrade::from_request(&request, &options) {
                Ok(upgrade) => {
                    let handle = responder.handle().clone();
                    handle.spawn(serve(upgrade.accept(responder, request.body), ends.clone()));
                }
                Err(refusal) => responder.send(refusal.into()),
            }
        })
    }
}

/// Reads once, records the result, and gives the test the sender.
fn lending(
    sender: &Rc<RefCell<Option<Sender>>>,
) -> impl Fn(WebSocket, Ends) -> Pin<Box<dyn Future<Output = ()>>> + Clone + 'static {
    let sender = sender.clone();
    move |mut socket, ends| {
        sender.replace(Some(socket.sender().clone()));
        Box::pin(async move {
            let end = socket.recv().await.map_or(Ok(()), |message| message.map(drop));
            ends.borrow_mut().push((end, None));
        })
    }
}

fn uri() -> Uri {
    Uri::from_static("https://localhost/chat")
}

fn open(bench: &mut Bench, protocol: Protocol, options: &Options) -> (WebSocket, Connection) {
    let mut connection = bench.connect(protocol);
    let options = options.clone();
    bench.run(async move {
        let socket = websocket::connect(&mut connection, uri(), HeaderMap::new(), &options).await;
        (socket.unwrap_or_else(|error| panic!("{protocol}: {error}")), connection)
    })
}

fn turns(bench: &mut Bench, count: usize) {
    for _ in 0..count {
        bench.turn();
    }
}

#[test]
fn messages_come_back_and_the_close_is_answered() {
    let keeping = deflate::Options::default().with_own_context(15).with_peer_context(15);
    for protocol in PROTOCOLS {
        for options in [
            Options::default(),
            Options::default().with_deflate(deflate::Options::default()),
            Options::default()
                .with_deflate(keeping)
                .with_protocol("chat.2")
                .with_protocol("chat.1"),
        ] {
            let ends = Ends::default();
            let mut bench = Bench::new(
                1,
                &Config::default(),
                echo(&options.clone().with_protocol("chat.1"), &ends),
            );
            let (mut socket, connection) = open(&mut bench, protocol, &options);
            let expected = format!("{options:?}").contains("chat.2").then_some("chat.2");
            assert!(socket.protocol().is_none() || socket.protocol() == expected, "{protocol}");
            let reason = bench.run(async move {
                for size in [0, 1, 125, 126, 5_000, 65_536, 900_000] {
                    for message in
                        [Message::text("€x".repeat(size / 4)), Message::binary(vec![7; size])]
                    {
                        socket.send(message.clone()).await.unwrap();
                        assert_eq!(socket.recv().await.unwrap().unwrap(), message);
                    }
                }
                socket.close(CloseReason {
                    code: CloseCode::new(4001).unwrap(),
                    text: "done".to_owned(),
                });
                assert!(socket.recv().await.is_none());
                assert_eq!(socket.send(Message::text("late")).await, Err(Error::Closed));
                socket.reason().cloned()
            });
            assert_eq!(reason.unwrap().code.number(), 4001, "{protocol}");
            bench.turn_until(|_| !ends.borrow().is_empty());
            assert_eq!(*ends.borrow(), [(Ok(()), Some(4001))], "{protocol}");
            drop(connection);
            bench.turn_until(|bench| {
                bench.count(|stats| stats.tcp_open.value() + stats.quic_open.value()) == 0
            });
            let bad = |stats: &pronghorn_engine::Stats| {
                stats.requests_aborted.value() + stats.websocket_errors.value()
            };
            assert_eq!(bench.count(bad), 0, "{protocol}");
        }
    }
}

#[test]
fn subprotocol_is_the_first_of_the_clients_that_the_server_has() {
    for protocol in PROTOCOLS {
        let server = Options::default().with_protocol("a").with_protocol("b");
        let mut bench = Bench::new(1, &Config::default(), echo(&server, &Ends::default()));
        for (asked, taken) in [(&["x", "b", "a"][..], Some("b")), (&["x"], None), (&[], None)] {
            let options =
                asked.iter().fold(Options::default(), |options, name| options.with_protocol(name));
            let (socket, _connection) = open(&mut bench, protocol, &options);
            assert_eq!(socket.protocol(), taken, "{protocol} {asked:?}");
        }
    }
}

#[test]
fn server_closes_with_a_reason_and_what_was_sent_before_arrives() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let serve = |mut socket: WebSocket, _| async move {
            for number in 0..100 {
                socket.sender().push(&Message::text(number.to_string())).unwrap();
            }
            socket.close(CloseReason::from(CloseCode::POLICY));
            // Only the first close sets the reason.
            socket.close(CloseReason::from(CloseCode::NORMAL));
            while socket.recv().await.is_some() {}
        };
        let mut bench =
            Bench::new(1, &Config::default(), serving(&Options::default(), &ends, serve));
        let (mut socket, _connection) = open(&mut bench, protocol, &Options::default());
        let (count, code) = bench.run(async move {
            let mut count = 0;
            while let Some(message) = socket.recv().await {
                assert_eq!(message.unwrap().as_text(), Some(count.to_string().as_str()));
                count += 1;
            }
            (count, socket.reason().map(|reason| reason.code))
        });
        assert_eq!((count, code), (100, Some(CloseCode::POLICY)), "{protocol}");
    }
}

#[test]
fn socket_that_is_dropped_goes_away() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &ends));
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        drop(socket);
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert_eq!(*ends.borrow(), [(Ok(()), Some(1001))], "{protocol}");
    }
}

#[test]
fn connection_that_ends_without_a_close_is_an_error() {
    for protocol in PROTOCOLS {
        let ends = Ends::default();
        let mut bench = Bench::new(1, &Config::default(), echo(&Options::default(), &ends));
        let (socket, _connection) = open(&mut bench, protocol, &Options::default());
        socket.sender().abort();
        bench.turn_until(|_| !ends.borrow().is_empty());
        assert_eq!(*ends.borrow(), [(Err(Error::Aborted), None)], "{protocol}");
    }
}

#[test]
fn message_over_the_limit_is_refused_with_1009() {
    let limits = Limits::default().with_websocket_message_bytes(1_000).unwrap();
    for protocol in PROTOCOLS {
        for deflate in [None, Some(deflate::Options::default())] {
            let options = deflate
                .map_or(Options::default(), |deflate| Options::default().with_deflate(deflate));
            let ends = Ends::default();
            let config = Config { limits: limits.clone(), ..Config::default() };
            let mut bench = Bench::new(1, &config, echo(&options, &ends));
            let (mut socket, _connection) = open(&mut bench, protocol, &options);
            let code = bench.run(async move {
                socket.send(Message::binary(vec![0; 1_000])).await.unwrap();
                assert!(socket.recv().await.unwrap().is_ok());
                socket.send(Message::binary(vec![0; 1_001])).await.unwrap();
                assert!(socket.recv().await.is_none());
                socket.reason().map(|reason| reason.code)
            });
            assert_eq!(code, Some(CloseCode::TOO_LARGE), "{protocol}");
            bench.turn_until(|_| !ends.borrow().is_empty());
            assert_eq!(*ends.borrow(), [(Err(ProtocolError::TooLarge.into()), None)], "{protocol}");
            assert_eq!(
                bench.count(|stats| stats.websocket_messages_too_large.value()),
                1,
                "{protocol}"
            );
        }
    }
}
