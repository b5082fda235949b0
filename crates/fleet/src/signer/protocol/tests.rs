use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn encoded(operation: &Operation, id: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    operation.encode(id, &mut bytes).unwrap();
    bytes
}

fn decoded(bytes: &[u8]) -> Result<Vec<Message>, FrameError> {
    let mut decoder = Decoder::new(MAX_MESSAGE_BYTES);
    decoder.handle_bytes(bytes);
    std::iter::from_fn(|| decoder.poll_message().transpose()).collect()
}

fn operations() -> impl Strategy<Value = Operation> {
    (
        any::<u8>(),
        proptest::collection::vec(any::<u8>(), 0..1500),
        proptest::option::of(any::<[u8; 20]>()),
        proptest::option::of("[a-z0-9.-]{0,80}"),
        proptest::option::of(any::<IpAddr>()),
        proptest::option::of(any::<IpAddr>()),
    )
        .prop_map(|(opcode, payload, ski, server_name, client_ip, server_ip)| Operation {
            opcode: Opcode(opcode),
            payload,
            ski: ski.map(Ski),
            server_name,
            client_ip,
            server_ip,
        })
}

proptest! {
    #[test]
    fn message_round_trips(operation in operations(), id: u32) {
        let bytes = encoded(&operation, id);
        prop_assert!(bytes.len() >= PADDED_BYTES);
        prop_assert_eq!(decoded(&bytes), Ok(vec![Message { id, operation: Ok(operation) }]));
    }

    #[test]
    fn pipelined_messages_in_any_pieces_round_trip(
        all in proptest::collection::vec(operations(), 1..5),
        piece in 1_usize..700,
    ) {
        let mut bytes = Vec::new();
        for (id, operation) in (0..).zip(&all) {
            operation.encode(id, &mut bytes).unwrap();
        }
        let mut decoder = Decoder::new(MAX_MESSAGE_BYTES);
        let mut received = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.handle_bytes(piece);
            while let Some(message) = decoder.poll_message().unwrap() {
                received.push(message.operation.unwrap());
            }
        }
        prop_assert_eq!(received, all);
        prop_assert_eq!(decoder.buffered(), 0);
    }

    #[test]
    fn truncated_message_is_never_one(operation in operations(), id: u32) {
        let bytes = encoded(&operation, id);
        for end in 0..bytes.len() {
            prop_assert_eq!(decoded(&bytes[..end]), Ok(vec![]));
        }
    }

    /// A body cut at any byte is malformed, or is the body without its last items.
    #[test]
    fn truncated_body_has_no_other_content(operation in operations()) {
        let bytes = encoded(&operation, 0);
        for end in HEADER_BYTES..bytes.len() {
            if let Ok(part) = Operation::decode(&bytes[HEADER_BYTES..end]) {
                prop_assert_eq!(part.opcode, operation.opcode);
                prop_assert!(part.payload.is_empty() || part.payload == operation.payload);
                prop_assert!(part.ski.is_none() || part.ski == operation.ski);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic_and_are_bounded(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = Operation::decode(&bytes);
        let mut decoder = Decoder::new(2048);
        for piece in bytes.chunks(97) {
            decoder.handle_bytes(piece);
            while let Ok(Some(_)) = decoder.poll_message() {}
            if decoder.poll_message().is_err() {
                return Ok(());
            }
            prop_assert!(decoder.buffered() < 2048 + 97);
        }
    }

    /// Messages whose bytes are changed, which reach deeper than arbitrary ones.
    #[test]
    fn changed_bytes_do_not_panic(
        operation in operations(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = encoded(&operation, 1);
        for (index, value) in changes {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        let _ = decoded(&bytes);
    }
}

/// A ping as gokeyless encodes it, by its source: header, opcode, payload, padding.
#[test]
fn ping_has_the_published_form() {
    let bytes = encoded(&Operation::new(Opcode::PING, *b"abc"), 0x0102_0304);
    let head = [1, 0, 0x03, 0xf8, 1, 2, 3, 4, 0x11, 0, 1, 0xf1, 0x12, 0, 3, b'a', b'b', b'c'];
    assert_eq!(bytes[..head.len()], head);
    assert_eq!(bytes[head.len()..head.len() + 3], [0x20, 0x03, 0xeb]);
    assert_eq!(bytes.len(), PADDED_BYTES);
}

/// Where fewer than three bytes are left, gokeyless goes past the padded size.
#[test]
fn sizes_around_the_padded_one_are_accepted() {
    for payload in 1000..1024 {
        let operation = Operation::new(Opcode::PING, vec![7; payload]);
        let bytes = encoded(&operation, 9);
        assert!((PADDED_BYTES..PADDED_BYTES + 20).contains(&bytes.len()), "{}", bytes.len());
        assert_eq!(decoded(&bytes).unwrap()[0].operation, Ok(operation));
    }
}

#[test]
fn unknown_item_is_ignored_and_repeated_one_is_malformed() {
    let opcode = [0x11, 0, 1, 0xf1];
    let with = |more: &[u8]| Operation::decode(&[&opcode[..], more].concat());
    assert_eq!(with(&[0x77, 0, 1, 5, 0x77, 0, 0]), Ok(Operation::new(Opcode::PING, [])));
    assert_eq!(with(&opcode), Err(MalformedOperation::Repeated(Tag::OPCODE)));
    assert_eq!(with(&[0x12, 0]), Err(MalformedOperation::Truncated));
    assert_eq!(with(&[0x12, 0, 2, 1]), Err(MalformedOperation::Truncated));
    assert_eq!(with(&[0x03, 0, 1, 1]), Err(MalformedOperation::WrongSize(Tag::CLIENT_IP, 1)));
    assert_eq!(with(&[0x02, 0, 1, 0xff]), Err(MalformedOperation::NotUtf8));
    assert_eq!(Operation::decode(&[]), Err(MalformedOperation::NoOpcode));
}

#[test]
fn message_over_the_limit_or_of_another_version_ends_the_connection() {
    let bytes = encoded(&Operation::new(Opcode::PING, []), 5);
    let mut decoder = Decoder::new(PADDED_BYTES - 1);
    // The header is enough.
    decoder.handle_bytes(&bytes[..HEADER_BYTES]);
    let error = decoder.poll_message().unwrap_err();
    assert_eq!(error, FrameError::TooLong { size: 1024, limit: 1023, id: 5 });
    let mut other = bytes;
    other[0] = 2;
    assert_eq!(decoded(&other), Err(FrameError::Version(2, 5)));
}

#[test]
fn operation_too_long_for_a_message_is_an_error() {
    let operation = Operation::new(Opcode::PING, vec![0; 70_000]);
    let mut bytes = vec![1];
    assert!(operation.encode(0, &mut bytes).is_err());
    let operation = Operation::new(Opcode::PING, vec![0; 65_533]);
    assert!(operation.encode(0, &mut bytes).is_err());
    assert_eq!(bytes, [1]);
}
