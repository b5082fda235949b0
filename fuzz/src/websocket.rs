//! WebSocket connections: frames of a peer, split arbitrarily, and messages of this implementation
//! read by the other side.

use bytes::Bytes;
use pronghorn_websocket::deflate::Options;
use pronghorn_websocket::{Connection, Error, Event, Message, Role};

use crate::input::Input;

const LIMIT: u64 = 1 << 16;

fn mask() -> [u8; 4] {
    [0x5a, 0x01, 0xff, 0x80]
}

/// Returns both sides of a connection with the options in `choice`.
fn pair(choice: u8) -> (Connection, Connection) {
    let mut options = Options::default().with_min_bytes(1);
    if choice & 2 != 0 {
        options = options.with_own_context(9 + choice % 7).with_peer_context(15 - choice % 7);
    }
    let agreed = (choice & 1 != 0).then(|| {
        let (server, answer) =
            options.answer([options.offer().as_str()]).expect("our own offer is accepted");
        (
            server,
            options
                .accept([answer.as_str()])
                .expect("our own answer is accepted")
                .expect("the answer has the extension"),
        )
    });
    let client = Connection::new(Role::Client { mask }, LIMIT, agreed.map(|(_, client)| client));
    (Connection::new(Role::Server, LIMIT, agreed.map(|(server, _)| server)), client)
}

fn read(connection: &mut Connection, bytes: &[u8]) -> Result<Vec<Event>, Error> {
    let (mut input, mut events) = (Bytes::copy_from_slice(bytes), Vec::new());
    while let Some(event) = connection.read(&mut input)? {
        if let Event::Message(message) = &event {
            assert!(message.data().len() as u64 <= LIMIT);
            assert!(message.as_text().is_none_or(|text| text.len() == message.data().len()));
        }
        events.push(event);
    }
    assert!(input.is_empty());
    Ok(events)
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    // Splitting the input must not change the result. Data with several errors may report a
    // different one.
    let (mut whole, mut cut) = (pair(choice).0, pair(choice).0);
    let (mut pieces, mut events, mut failed) = (Vec::new(), Vec::new(), false);
    let mut sent = Input::new(data.get(1..).unwrap_or_default());
    while !sent.is_empty() {
        let piece = sent.piece();
        pieces.extend_from_slice(piece);
        match read(&mut cut, piece) {
            Ok(more) if !failed => events.extend(more),
            Ok(more) => assert!(more.is_empty(), "no events follow a failure"),
            Err(_) => failed = true,
        }
        while cut.poll_control().is_some() {}
    }
    match read(&mut whole, &pieces) {
        Ok(all) => assert!(!failed && all == events),
        Err(_) => assert!(failed),
    }
    // What one side sends, the other receives.
    let (mut server, mut client) = pair(choice);
    while !input.is_empty() {
        let content = input.piece();
        let text = String::from_utf8_lossy(content).into_owned();
        let message = if content.len().is_multiple_of(2) {
            Message::text(text)
        } else {
            Message::binary(Bytes::copy_from_slice(content))
        };
        let encoded = client.encode(&message).expect("the connection is open");
        let bytes = [encoded.first, encoded.rest].concat();
        assert_eq!(read(&mut server, &bytes), Ok(vec![Event::Message(message.clone())]));
        let encoded = server.encode(&message).expect("the connection is open");
        let bytes = [encoded.first, encoded.rest].concat();
        assert_eq!(read(&mut client, &bytes), Ok(vec![Event::Message(message)]));
    }
}
