//! Arbitrary input from a peer gives the same result however it is split, and never panics.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Config, Connection, ErrorCode, FieldLine, Role, StreamId, varint};
use proptest::{collection::vec, prelude::*};
use support::{data, frame, get_with, headers, joined_events, post_with, settings};

/// Pieces that make up plausible and implausible streams.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(get_with(&[])),
        Just(post_with(&[("content-length", "3")])),
        Just(headers(&[("x-a", "b")])),
        Just(headers(&[(":status", "200")])),
        Just(headers(&[(":status", "100")])),
        Just(settings(&[0x06, 1000])),
        vec(any::<u8>(), 0..5).prop_map(|content| data(&content)),
        (0..0x50_u64, vec(any::<u8>(), 0..5))
            .prop_map(|(frame_type, payload)| frame(frame_type, &payload)),
        (prop_oneof![Just(0xf0700_u64), Just(0xf0701), Just(0x4040)], vec(any::<u8>(), 0..5))
            .prop_map(|(frame_type, payload)| frame(frame_type, &payload)),
        vec(any::<u8>(), 0..8),
    ]
}

/// Returns the events and the error for these bytes on one stream, split at these positions.
fn run(
    role: Role,
    stream: StreamId,
    bytes: &[u8],
    cuts: &[usize],
    fin: bool,
) -> (Vec<String>, Option<ErrorCode>) {
    let mut connection = Connection::new(role, Config::default());
    if role == Role::Client && stream.is_request() {
        connection.open_request(stream).expect("a new client takes requests");
    }
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    let mut outcome = places.windows(2).try_for_each(|pair| {
        connection.handle_data(stream, Bytes::copy_from_slice(&bytes[pair[0]..pair[1]]))
    });
    if fin && outcome.is_ok() {
        outcome = connection.handle_fin(stream);
    }
    (joined_events(&mut connection), outcome.err().map(|error| error.code()))
}

proptest! {
    #[test]
    fn split_input_gives_the_same_events(
        pieces in vec(piece(), 0..6),
        cuts in vec(any::<usize>(), 0..8),
        stream in prop_oneof![Just(0_u64), Just(2), Just(3), Just(1)],
        uni_type in 0..5_u64,
        is_server: bool,
        fin: bool,
    ) {
        let role = if is_server { Role::Server } else { Role::Client };
        let stream = StreamId(stream);
        let mut bytes = Vec::new();
        if !stream.is_bidi() {
            varint::encode(uni_type, &mut bytes);
        }
        bytes.extend(pieces.concat());
        let whole = run(role, stream, &bytes, &[], fin);
        prop_assert_eq!(run(role, stream, &bytes, &cuts, fin), whole);
    }

    /// Operations in any order, as from a careless caller and a hostile peer.
    #[test]
    fn operations_in_any_order_never_panic(
        is_server: bool,
        operations in vec((0..11_u8, 0..24_u64, piece()), 0..40),
    ) {
        let role = if is_server { Role::Server } else { Role::Client };
        let mut connection = Connection::new(role, Config::default());
        for (operation, stream, bytes) in operations {
            let stream = StreamId(stream);
            let outcome = match operation {
                0..=3 => connection.handle_data(stream, Bytes::from(bytes)),
                4 => connection.handle_fin(stream),
                5 => connection.handle_reset(stream, 0x10c),
                6 => {
                    connection.finish_sending(stream);
                    Ok(())
                }
                7 => {
                    connection.stop_receiving(stream);
                    Ok(())
                }
                8 => connection.handle_stop_sending(stream, 0x10c),
                9 => {
                    // Refused if the stream is not open or the section is out of order.
                    let lines = [FieldLine::new(if is_server { b":status" } else { b"x-a" }, &bytes)];
                    let _ = connection.encode_headers(stream, lines, &mut BytesMut::new());
                    Ok(())
                }
                _ => {
                    // Refused if the stream is not ours to open.
                    let _ = connection.open_request(stream);
                    connection.go_away();
                    Ok(())
                }
            };
            while connection.poll_event().is_some() {}
            while connection.poll_uni_write().is_some() {}
            if outcome.is_err() {
                break;
            }
        }
    }

    #[test]
    fn varints_survive_the_round_trip(value in 0..=varint::MAX, shift in 0..62_u32) {
        let value = value >> shift;
        let mut bytes = Vec::new();
        varint::encode(value, &mut bytes);
        prop_assert_eq!(bytes.len(), varint::encoded_len(value));
        let mut input = &bytes[..];
        prop_assert_eq!(varint::decode(&mut input), Some(value));
        prop_assert!(input.is_empty());
        for cut in 0..bytes.len() {
            prop_assert_eq!(varint::decode(&mut &bytes[..cut]), None);
        }
    }
}
