use proptest::prelude::*;

use super::*;
use crate::CloseCode;
use crate::deflate::Options;

const LIMIT: u64 = 1 << 20;

fn mask() -> [u8; 4] {
    [0x37, 0xfa, 0x21, 0x3d]
}

fn server(options: Option<Options>) -> Connection {
    let agreed = options.map(|options| options.answer([options.offer().as_str()]).unwrap().0);
    Connection::new(Role::Server, LIMIT, agreed)
}

fn client(options: Option<Options>) -> Connection {
    let agreed = options.map(|options| {
        let (_, answer) = options.answer([options.offer().as_str()]).unwrap();
        options.accept([answer.as_str()]).unwrap().unwrap()
    });
    Connection::new(Role::Client { mask }, LIMIT, agreed)
}

/// Returns all events for `bytes`, delivered in two pieces split at `cut`.
fn read_cut(connection: &mut Connection, bytes: &[u8], cut: usize) -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    for piece in [&bytes[..cut], &bytes[cut..]] {
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(event) = connection.read(&mut input)? {
            events.push(event);
        }
        assert!(input.is_empty());
    }
    Ok(events)
}

fn read(connection: &mut Connection, bytes: &[u8]) -> Result<Vec<Event>, Error> {
    read_cut(connection, bytes, bytes.len())
}

fn whole(encoded: Option<Encoded>) -> Vec<u8> {
    let encoded = encoded.unwrap();
    [encoded.first, encoded.rest].concat()
}

fn masked(frame: &[u8]) -> Vec<u8> {
    let mut input = Bytes::copy_from_slice(frame);
    let mut out = Vec::new();
    while !input.is_empty() {
        let head = crate::frame::PartialHead::default().read(&mut input).unwrap().unwrap();
        Head { mask: Some(mask()), ..head }.write(&mut out);
        let mut data = input.split_to(head.length as usize).to_vec();
        apply_mask(&mut data, mask(), 0);
        out.extend_from_slice(&data);
    }
    out
}

fn text(text: &str) -> Vec<Event> {
    vec![Event::Message(Message::text(text))]
}

// RFC 6455, section 5.7

#[test]
fn rfc6455_example_frames_are_read_and_written() {
    let single = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    let single_masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    let fragments = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
    let ping = [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    let pong_masked = [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(read(&mut client(None), &single).unwrap(), text("Hello"));
    assert_eq!(read(&mut server(None), &single_masked).unwrap(), text("Hello"));
    assert_eq!(read(&mut client(None), &fragments).unwrap(), text("Hello"));
    let mut client = client(None);
    assert_eq!(read(&mut client, &ping).unwrap(), [Event::Ping("Hello".into())]);
    assert_eq!(client.poll_control().unwrap(), &pong_masked[..]);
    assert_eq!(client.poll_control(), None);
    assert_eq!(read(&mut server(None), &pong_masked).unwrap(), [Event::Pong("Hello".into())]);
    assert_eq!(whole(server(None).encode(&Message::text("Hello"))), single);
    assert_eq!(whole(client.encode(&Message::text("Hello"))), single_masked);
    for (length, head) in [
        (125, &[0x82, 0x7d][..]),
        (256, &[0x82, 0x7e, 0x01, 0x00]),
        (65_535, &[0x82, 0x7e, 0xff, 0xff]),
        (65_536, &[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        let message = Message::binary(vec![7; length]);
        let encoded = whole(server(None).encode(&message));
        assert!(encoded.starts_with(head) && encoded.len() == head.len() + length, "{length}");
        assert_eq!(read(&mut self::client(None), &encoded).unwrap(), [Event::Message(message)]);
    }
}

// RFC 7692, section 7.2.3

#[test]
fn rfc7692_example_messages_are_decompressed() {
    let keeping = Options::default().with_peer_context(15).with_own_context(15);
    let one_block = [0xc1, 0x07, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let fragments = [0x41, 0x03, 0xf2, 0x48, 0xcd, 0x80, 0x04, 0xc9, 0xc9, 0x07, 0x00];
    let sharing = [0xc1, 0x05, 0xf2, 0x00, 0x11, 0x00, 0x00];
    let no_compression =
        [0xc1, 0x0b, 0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00];
    let last_block = [0xc1, 0x08, 0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
    let two_blocks =
        [0xc1, 0x0d, 0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00];
    let empty = [0xc1, 0x01, 0x00];
    for options in [Options::default(), keeping] {
        let mut client = client(Some(options));
        for example in
            [&one_block[..], &fragments, &no_compression, &last_block, &two_blocks, &one_block]
        {
            assert_eq!(read(&mut client, example).unwrap(), text("Hello"), "{example:x?}");
        }
        assert_eq!(read(&mut client, &empty).unwrap(), text(""));
    }
    let mut keeps = client(Some(keeping));
    assert_eq!(
        read(&mut keeps, &[&one_block[..], &sharing].concat()).unwrap(),
        [text("Hello"), text("Hello")].concat()
    );
    // A connection that negotiated no context cannot refer to the first message.
    let mut forgets = client(Some(Options::default()));
    assert_eq!(read(&mut forgets, &[&one_block[..], &sharing].concat()), Err(Error::NotDeflate));
}

#[test]
fn messages_are_compressed_where_that_helps() {
    let long = Message::text("to and fro ".repeat(100));
    for (options, keeps) in [
        (Options::default(), false),
        (Options::default().with_own_context(9).with_peer_context(9), true),
    ] {
        let (mut from, mut to) = (server(Some(options)), client(Some(options)));
        let sizes: Vec<_> = (0..3)
            .map(|_| {
                let encoded = whole(from.encode(&long));
                assert_eq!(encoded[0], 0xc1);
                assert_eq!(read(&mut to, &encoded).unwrap(), [Event::Message(long.clone())]);
                encoded.len()
            })
            .collect();
        assert!(sizes[0] < 100 && (sizes[2] < sizes[0]) == keeps, "{sizes:?}");
        // Short messages, and those the application excludes, are not compressed.
        for encoded in [from.encode(&Message::text("short")), from.encode_compressed(&long, false)]
        {
            let encoded = whole(encoded);
            assert_eq!(encoded[0], 0x81);
            assert_eq!(read(&mut to, &encoded).unwrap().len(), 1);
        }
    }
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let noise: Vec<u8> = std::iter::repeat_with(&mut next).take(2_000).collect();
    assert_eq!(whole(server(Some(Options::default())).encode(&Message::binary(noise)))[0], 0x82);
}

#[test]
fn prepared_message_is_encoded_once_for_all_connections() {
    let prepared = Prepared::new(Message::text("to and fro ".repeat(200)));
    let keeping = Options::default().with_own_context(15).with_peer_context(15);
    for (options, first) in [(None, 0x81), (Some(Options::default()), 0xc1), (Some(keeping), 0x81)]
    {
        let mut pointers = Vec::new();
        for _ in 0..2 {
            let (mut from, mut to) = (server(options), client(options));
            let encoded = from.encode_prepared(&prepared).unwrap();
            pointers.push(encoded.first.as_ptr());
            let bytes = whole(Some(encoded));
            assert_eq!(bytes[0], first, "{options:?}");
            assert_eq!(
                read(&mut to, &bytes).unwrap(),
                [Event::Message(prepared.message().clone())]
            );
        }
        assert_eq!(pointers[0], pointers[1], "shared");
    }
    let (mut from, mut to) = (client(None), server(None));
    assert_eq!(read(&mut to, &whole(from.encode_prepared(&prepared))).unwrap().len(), 1);
}

// Fragmented messages

fn first(kind: Kind, compress: bool) -> Fragment {
    Fragment::First { kind, compress }
}

/// Encodes a message in these fragments.
fn in_parts(from: &mut Connection, kind: Kind, compress: bool, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let fragment = match at {
            0 => first(kind, compress),
            _ if at + 1 < parts.len() => Fragment::Middle,
            _ => Fragment::Last,
        };
        bytes.extend(whole(from.encode_fragment(fragment, Bytes::copy_from_slice(part)).unwrap()));
        assert_eq!(from.is_in_message(), fragment != Fragment::Last);
        from.ping(b"between");
        bytes.extend(from.poll_control().unwrap());
    }
    bytes
}

#[test]
fn fragments_form_one_message_with_control_frames_between() {
    let mut from = server(None);
    // RFC 6455, section 5.7, and a ping after each.
    let ping = [&[0x89, 0x07][..], b"between"].concat();
    let expected =
        [&[0x01, 0x03, 0x48, 0x65, 0x6c][..], &ping, &[0x80, 0x02, 0x6c, 0x6f], &ping].concat();
    assert_eq!(in_parts(&mut from, Kind::Text, true, &[b"Hel", b"lo"]), expected);
    let asked = Event::Ping("between".into());
    let hello = Event::Message(Message::text("Hello"));
    assert_eq!(read(&mut client(None), &expected).unwrap(), [asked.clone(), hello, asked]);
    assert_eq!(whole(from.encode(&Message::text("x")))[0], 0x81);
}

#[test]
fn fragments_are_compressed_as_one_message() {
    let keeping = Options::default().with_own_context(15).with_peer_context(15);
    let text = "to and fro ".repeat(100);
    let (a, b) = text.as_bytes().split_at(300);
    for options in [Options::default(), keeping] {
        let (mut from, mut to) = (server(Some(options)), client(Some(options)));
        for parts in
            [&[a, b][..], &[b"", a, b"", b, b""], &[b"", b""], &[a, b"", b""], &[b"", b"", a]]
        {
            let message = Event::Message(Message::text(String::from_utf8(parts.concat()).unwrap()));
            let bytes = in_parts(&mut from, Kind::Text, true, parts);
            assert_eq!(bytes[0], 0x41, "the first fragment has RSV1 set and FIN clear");
            assert!(bytes.len() < 150, "{} bytes", bytes.len());
            assert!(read(&mut to, &bytes).unwrap().contains(&message), "{parts:?}");
            // Whole messages in between keep the contexts of both sides in sync.
            let long = Message::text(text.clone());
            let encoded = whole(from.encode(&long));
            assert_eq!(read(&mut to, &encoded).unwrap(), [Event::Message(long)]);
            let plain = in_parts(&mut from, Kind::Binary, false, parts);
            assert_eq!(plain[0], 0x02);
            assert!(
                read(&mut to, &plain)
                    .unwrap()
                    .contains(&Event::Message(Message::binary(parts.concat())))
            );
        }
    }
}

#[test]
fn out_of_order_fragments_are_refused_without_effect() {
    let mut from = server(None);
    let part = |from: &mut Connection, fragment, data: &'static [u8]| {
        from.encode_fragment(fragment, Bytes::from_static(data))
    };
    assert_eq!(part(&mut from, Fragment::Middle, b""), Err(FragmentError::NotBegun));
    assert_eq!(part(&mut from, Fragment::Last, b""), Err(FragmentError::NotBegun));
    assert_eq!(part(&mut from, first(Kind::Text, true), b"\xff"), Err(FragmentError::NotUtf8));
    assert!(!from.is_in_message());
    let mut sent = whole(part(&mut from, first(Kind::Text, true), b"\xe2\x82").unwrap());
    assert_eq!(part(&mut from, first(Kind::Text, true), b""), Err(FragmentError::UnderWay));
    assert_eq!(part(&mut from, Fragment::Middle, b"x"), Err(FragmentError::NotUtf8));
    assert_eq!(part(&mut from, Fragment::Last, b""), Err(FragmentError::NotUtf8));
    // No other message may come in between.
    assert_eq!(from.encode(&Message::text("other")), None);
    assert_eq!(from.encode_prepared(&Prepared::new(Message::text("other"))), None);
    sent.extend(whole(part(&mut from, Fragment::Last, b"\xac").unwrap()));
    assert_eq!(read(&mut client(None), &sent).unwrap(), [Event::Message(Message::text("€"))]);
    assert!(part(&mut from, first(Kind::Text, true), b"").unwrap().is_some());
    from.close(None);
    assert_eq!(part(&mut from, Fragment::Last, b""), Ok(None));
    assert!(!from.is_in_message());
}

#[test]
fn prepared_message_excluded_from_compression_is_not_compressed() {
    let prepared = Prepared::new(Message::text("to and fro ".repeat(200))).with_compression(false);
    for mut from in [server(Some(Options::default())), client(Some(Options::default()))] {
        assert_eq!(whole(from.encode_prepared(&prepared))[0], 0x81);
    }
}

// Refused frames

#[test]
fn invalid_frames_fail_the_connection() {
    let protocol = CloseCode::PROTOCOL_ERROR;
    for (frames, code) in [
        // Reserved bits and opcodes.
        (&[0xc1, 0x00][..], protocol),
        (&[0xa1, 0x00], protocol),
        (&[0x91, 0x00], protocol),
        (&[0xc9, 0x00], protocol),
        (&[0x83, 0x00], protocol),
        (&[0x87, 0x00], protocol),
        (&[0x8b, 0x00], protocol),
        (&[0x8f, 0x00], protocol),
        // Fragmented control frames, or too long ones.
        (&[0x09, 0x00], protocol),
        (&[0x08, 0x00], protocol),
        (&[0x89, 0x7e, 0x00, 0x7e], protocol),
        // Lengths that are not minimally encoded, or invalid.
        (&[0x82, 0x7e, 0x00, 0x7d], protocol),
        (&[0x82, 0x7f, 0, 0, 0, 0, 0, 0, 0xff, 0xff], protocol),
        (&[0x82, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0], protocol),
        // Fragments without a message.
        (&[0x80, 0x00], protocol),
        (&[0x00, 0x00], protocol),
        (&[0x01, 0x00, 0x81, 0x00], protocol),
        (&[0x01, 0x00, 0x82, 0x00], protocol),
        // Close codes that must not be sent, or half a code.
        (&[0x88, 0x01, 0x03], protocol),
        (&[0x88, 0x02, 0x00, 0x00], protocol),
        (&[0x88, 0x02, 0x03, 0xed], protocol),
        (&[0x88, 0x02, 0x03, 0xee], protocol),
        (&[0x88, 0x02, 0x03, 0xf7], protocol),
        (&[0x88, 0x02, 0x0b, 0xb7], protocol),
        (&[0x88, 0x02, 0x13, 0x88], protocol),
        // Not UTF-8.
        (&[0x88, 0x03, 0x03, 0xe8, 0xff], CloseCode::INVALID_PAYLOAD),
        (&[0x81, 0x01, 0xff], CloseCode::INVALID_PAYLOAD),
        (&[0x81, 0x01, 0xc3], CloseCode::INVALID_PAYLOAD),
        // Reported as soon as the bytes arrive.
        (&[0x01, 0x7e, 0x10, 0x00, 0xff], CloseCode::INVALID_PAYLOAD),
        (&[0x82, 0x7f, 0, 0, 0, 0, 0, 0x10, 0, 1], CloseCode::TOO_LARGE),
    ] {
        let mut server = server(None);
        let mut bytes = masked_loosely(frames);
        let error = read(&mut server, &bytes).expect_err(&format!("{frames:x?}"));
        assert_eq!(error.close_code(), code, "{frames:x?}");
        // Further input is ignored, and only the close frame is sent.
        bytes.extend_from_slice(&masked(&[0x81, 0x01, b'x']));
        assert_eq!(read(&mut server, &bytes), Ok(vec![]));
        assert_eq!(server.encode(&Message::text("x")), None);
        assert!(!server.is_over());
        assert_eq!(&server.poll_control().unwrap()[2..4], &code.number().to_be_bytes());
        assert!(server.is_over() && server.poll_control().is_none());
    }
    assert!(read(&mut server(None), &[0x81, 0x00]).is_err(), "not masked");
    assert!(read(&mut client(None), &masked(&[0x81, 0x00])).is_err(), "masked");
    let mut compressing = server(Some(Options::default()));
    assert!(
        read(&mut compressing, &masked(&[0x41, 0x00, 0xc0, 0x00])).is_err(),
        "RSV1 is only permitted on the first fragment"
    );
    assert!(
        read(&mut server(Some(Options::default())), &masked(&[0xc2, 0x03, 0xff, 0xff, 0xff]))
            .is_err(),
        "not deflate"
    );
}

/// Sets the mask bit and adds a mask after each header, even if the frame is incomplete or invalid.
fn masked_loosely(frames: &[u8]) -> Vec<u8> {
    let (mut rest, mut out) = (frames, Vec::new());
    while let [first, length, after @ ..] = rest {
        let extra = match length {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        out.extend_from_slice(&[*first, 0x80 | length]);
        out.extend_from_slice(&after[..extra]);
        out.extend_from_slice(&mask());
        let announced = after[..extra]
            .iter()
            .fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
            .max(usize::from(*length) * usize::from(extra == 0));
        let (data, after) = after[extra..].split_at(announced.min(after.len() - extra));
        let mut data = data.to_vec();
        apply_mask(&mut data, mask(), 0);
        out.extend_from_slice(&data);
        rest = after;
    }
    out
}

#[test]
fn message_above_the_limit_is_not_buffered() {
    // Small fragments that together are too large.
    let mut server = server(None);
    let part = masked(&[&[0x00, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0][..], &vec![0; 65_536]].concat());
    read(&mut server, &masked(&[0x02, 0x00])).unwrap();
    for _ in 0..16 {
        read(&mut server, &part).unwrap();
    }
    assert_eq!(read(&mut server, &masked(&[0x00, 0x01, 0x00])), Err(Error::TooLarge));
    // Compressed data that expands a thousandfold.
    let options = Options::default();
    let mut bomb = client(Some(options));
    let mut victim = self::server(Some(options));
    let exact = whole(bomb.encode(&Message::binary(vec![0; LIMIT as usize])));
    assert!(exact.len() < 2_000);
    assert_eq!(read(&mut victim, &exact).unwrap().len(), 1);
    let large = whole(bomb.encode(&Message::binary(vec![0; 64 * LIMIT as usize])));
    assert_eq!(read(&mut victim, &large), Err(Error::TooLarge));
    let held = victim.receiver.held_bytes();
    assert!(held <= 2 * LIMIT as usize, "{held}");
}

#[test]
fn idle_connection_buffers_nothing() {
    let mut server = server(Some(Options::default()));
    let mut client = client(Some(Options::default()));
    for message in [Message::text("to and fro ".repeat(1_000)), Message::binary(vec![1; 3])] {
        let bytes = whole(client.encode(&message));
        read_cut(&mut server, &bytes, 5).unwrap();
        drop(server.encode(&message));
        assert_eq!(server.receiver.held_bytes(), 0);
    }
    assert!(size_of::<Connection>() <= 320, "{}", size_of::<Connection>());
}

// Closing

#[test]
fn close_is_answered_and_nothing_follows() {
    let (mut server, mut client) = (server(None), client(None));
    let reason = CloseReason { code: CloseCode::new(4000).unwrap(), text: "gone ".repeat(40) };
    client.ping(b"late");
    client.close(Some(reason.clone()));
    client.close(Some(CloseCode::NORMAL.into()));
    assert_eq!(client.encode(&Message::text("late")), None);
    let sent = client.poll_control().unwrap();
    assert_eq!((client.poll_control(), client.is_over()), (None, false));
    let events = read(&mut server, &sent).unwrap();
    let [Event::Close(Some(read_reason))] = &events[..] else { panic!("{events:?}") };
    assert!(
        read_reason.code == reason.code
            && reason.text.starts_with(&read_reason.text)
            && read_reason.text.len() == 123
    );
    // Pending messages are sent before the answer.
    assert_eq!((server.poll_control(), server.is_closing()), (None, false));
    assert!(server.encode(&Message::text("last")).is_some());
    server.close(Some(reason.code.into()));
    assert_eq!(server.encode(&Message::text("late")), None);
    let answer = server.poll_control().unwrap();
    assert_eq!(&answer[..], [0x88, 0x02, 0x0f, 0xa0]);
    assert!(server.is_over());
    assert_eq!(read(&mut client, &answer).unwrap(), [Event::Close(Some(reason.code.into()))]);
    assert!(client.is_over() && client.poll_control().is_none());
    // Without a code.
    let mut server = self::server(None);
    assert_eq!(read(&mut server, &masked(&[0x88, 0x00])).unwrap(), [Event::Close(None)]);
    server.close(None);
    assert_eq!(server.poll_control().unwrap(), &[0x88, 0x00][..]);
}

#[test]
fn pings_are_answered_between_fragments() {
    let mut server = server(None);
    let events = read(
        &mut server,
        &masked(&[0x01, 0x01, b'a', 0x89, 0x01, b'1', 0x89, 0x01, b'2', 0x80, 0x01, b'b']),
    )
    .unwrap();
    assert_eq!(
        events,
        [Event::Ping("1".into()), Event::Ping("2".into()), Event::Message(Message::text("ab"))]
    );
    assert_eq!(server.poll_control().unwrap(), &[0x8a, 0x01, b'1'][..]);
    assert_eq!(server.poll_control().unwrap(), &[0x8a, 0x01, b'2'][..]);
    assert!(!server.wants_control());
    // A peer that pings without reading gets answers to the latest pings.
    for number in 0..100 {
        read(&mut server, &masked(&[0x89, 0x01, number])).unwrap();
    }
    let answered: Vec<_> =
        std::iter::from_fn(|| server.poll_control()).map(|pong| pong[2]).collect();
    assert_eq!(answered, (84..100).collect::<Vec<_>>());
}

// Arbitrary input

proptest! {
    #[test]
    fn messages_split_anywhere_arrive_complete(
        contents in proptest::collection::vec((any::<bool>(), "\\PC{0,300}", 1_usize..4), 1..4),
        compress: bool,
        keep: bool,
        parts in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let options = Options::default().with_min_bytes(1);
        let options = if keep { options.with_own_context(10).with_peer_context(10) } else { options };
        let (mut from, mut to) = (client(compress.then_some(options)), server(compress.then_some(options)));
        let (mut bytes, mut sent) = (Vec::new(), Vec::new());
        for (is_text, content, repeat) in contents {
            let content = content.repeat(repeat);
            let message = if is_text { Message::text(content) } else { Message::binary(content.into_bytes()) };
            let data = message.data();
            let begin = parts.index(data.len() + 2);
            if begin > data.len() {
                bytes.extend(whole(from.encode(&message)));
            } else {
                // Split anywhere, even inside characters.
                let (head, tail) = (data.slice(..begin), data.slice(begin..));
                bytes.extend(whole(from.encode_fragment(first(message.kind(), true), head).unwrap()));
                bytes.extend(whole(from.encode_fragment(Fragment::Last, tail).unwrap()));
            }
            from.ping(b"?");
            bytes.extend(from.poll_control().unwrap());
            sent.extend([Event::Message(message), Event::Ping("?".into())]);
        }
        prop_assert_eq!(read_cut(&mut to, &bytes, cut.index(bytes.len())).unwrap(), sent);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), masks: bool) {
        let options = Some(Options::default().with_peer_context(15));
        let mut connection = if masks { server(options) } else { client(options) };
        let whole = read(&mut connection, &bytes);
        // Byte by byte, the result is the same.
        let mut again = if masks { server(options) } else { client(options) };
        let mut events = Ok(Vec::new());
        for byte in &bytes {
            match read(&mut again, &[*byte]) {
                Ok(more) => events.as_mut().unwrap().extend(more),
                Err(error) => {
                    events = Err(error);
                    break;
                }
            }
        }
        // Data with several errors may report a different one, depending on the split.
        prop_assert_eq!(whole.ok(), events.ok());
    }
}
