//! Insertions, references and memory of the encoder.

use bytes::BytesMut;
use pronghorn_qpack::{
    Decoded, Decoder, DecoderStreamError, Encoder, FieldLine, FieldSection, SectionTooLarge,
};

/// An encoder and its peer's decoder; the test delivers both streams.
struct Pair {
    encoder: Encoder,
    decoder: Decoder,
}

impl Pair {
    fn new(capacity: u64, blocked_streams: u64) -> Self {
        let mut encoder = Encoder::new();
        encoder.set_peer_settings(capacity, blocked_streams);
        Self { encoder, decoder: Decoder::with_table(capacity, blocked_streams) }
    }

    fn encode(&mut self, stream_id: u64, lines: &[(&str, &str)]) -> BytesMut {
        let mut section = BytesMut::new();
        let lines =
            lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
        self.encoder.encode(stream_id, lines, &mut section);
        section
    }

    /// Delivers the encoder stream and returns its bytes.
    fn insert(&mut self) -> usize {
        let bytes = self.encoder.take_instructions().unwrap_or_default();
        self.decoder.handle_encoder_stream(&bytes).expect("our own instructions are valid");
        bytes.len()
    }

    /// Delivers the decoder stream.
    fn acknowledge(&mut self) {
        let bytes = self.decoder.take_instructions().unwrap_or_default();
        self.encoder.handle_decoder_stream(&bytes).expect("our own instructions are valid");
    }

    fn decode(&mut self, stream_id: u64, section: &[u8]) -> Option<String> {
        let mut lines = FieldSection::new();
        let decoded = self
            .decoder
            .decode(stream_id, section, 100_000, &mut lines)
            .expect("our own sections are valid");
        (decoded == Decoded::Complete).then(|| format!("{lines:?}"))
    }

    /// Sends a section, delivers everything, and returns the bytes of the section and of the
    /// instructions.
    fn exchange(&mut self, stream_id: u64, lines: &[(&str, &str)]) -> (usize, usize) {
        let section = self.encode(stream_id, lines);
        let inserted = self.insert();
        assert!(self.decode(stream_id, &section).is_some());
        self.acknowledge();
        (section.len(), inserted)
    }
}

fn is_static_only(section: &[u8]) -> bool {
    section[0] == 0
}

const AGENT: (&str, &str) = ("user-agent", "Mozilla/5.0 (X11; Linux x86_64) of some length");

#[test]
fn constant_lines_are_inserted_on_first_use_and_others_on_second() {
    let mut pair = Pair::new(4096, 16);
    let lines = [AGENT, ("x-app", "some-value-of-the-application")];
    let (first, inserted) = pair.exchange(0, &lines);
    assert!(first > 20 && inserted > 30, "{first} {inserted}");
    let (second, inserted) = pair.exchange(4, &lines);
    assert!(second < 6 && inserted > 20, "{second} {inserted}");
    assert_eq!(pair.exchange(8, &lines), (4, 0));
}

#[test]
fn secrets_and_changing_values_never_enter_the_table() {
    let mut pair = Pair::new(4096, 16);
    let lines = [
        ("cookie", "session=1"),
        ("authorization", "Basic abc"),
        ("age", "10"),
        (":path", "/a"),
        ("etag", "\"1\""),
    ];
    for stream in 0..5 {
        pair.exchange(stream * 4, &lines);
    }
    for stream in 5..10 {
        let mut section = BytesMut::new();
        pair.encoder.encode(
            stream * 4,
            [
                FieldLine::never_indexed(b"x-token", b"secret"),
                FieldLine::never_indexed(b"user-agent", b"a"),
            ],
            &mut section,
        );
        assert!(pair.decode(stream * 4, &section).is_some());
    }
    assert_eq!((pair.insert(), pair.encoder.table_size()), (0, 0));
}

//= RFC 9204 section 4.5.4
//# When the 'N' bit is set, the encoded field line MUST always be encoded with a literal representation.
#[test]
fn secret_equal_to_an_entry_stays_literal() {
    let mut pair = Pair::new(4096, 16);
    pair.exchange(0, &[AGENT, ("x-a", "b")]);
    pair.exchange(4, &[AGENT, ("x-a", "b")]);
    let mut section = BytesMut::new();
    let secrets = [
        FieldLine::never_indexed(AGENT.0.as_bytes(), AGENT.1.as_bytes()),
        FieldLine::never_indexed(b"x-a", b"b"),
    ];
    pair.encoder.encode(8, secrets, &mut section);
    let mut lines = FieldSection::new();
    pair.decoder.decode(8, &section, 1000, &mut lines).unwrap();
    assert_eq!(lines.iter().map(FieldLine::from).collect::<Vec<_>>(), secrets);
    // The second one refers to the entry's name, which is not secret, but spells out its value.
    assert!(!is_static_only(&section) && section.ends_with(&[1, b'b']), "{section:x?}");
}

#[test]
fn repeated_name_with_changing_values_is_inserted_alone() {
    let mut pair = Pair::new(4096, 16);
    let (first, _) = pair.exchange(0, &[("x-some-counter", "1")]);
    pair.exchange(4, &[("x-some-counter", "2")]);
    let (third, inserted) = pair.exchange(8, &[("x-some-counter", "3")]);
    assert_eq!(inserted, 0);
    assert!(third + 8 < first, "{third} {first}");
    assert_eq!(pair.encoder.table_size(), 14 + 32);
}

//= RFC 9204 section 3.2.3
//# When the maximum table capacity is zero, the encoder MUST NOT insert entries into the dynamic table and MUST NOT send any
//# encoder instructions on the encoder stream.
#[test]
fn nothing_is_inserted_without_a_table() {
    for (own, peers) in [(4096, 0), (0, 4096), (4096, 31)] {
        let mut encoder = Encoder::with_max_table_capacity(own);
        encoder.set_peer_settings(peers, 16);
        for stream in 0..4 {
            let mut section = BytesMut::new();
            encoder.encode(
                stream * 4,
                [FieldLine::new(b"user-agent", b"a"), FieldLine::new(b"x-a", b"b")],
                &mut section,
            );
            assert!(is_static_only(&section));
        }
        assert_eq!(encoder.take_instructions(), None);
    }
}

#[test]
fn nothing_is_inserted_before_the_peers_settings() {
    let mut encoder = Encoder::new();
    let mut section = BytesMut::new();
    encoder.encode(0, [FieldLine::new(b"user-agent", b"a")], &mut section);
    assert!(is_static_only(&section));
    assert_eq!(encoder.take_instructions(), None);
}

//= RFC 9204 section 3.2.3
//# The encoder MUST NOT set a dynamic table capacity that exceeds this maximum, but it can choose to use a lower
//# dynamic table capacity; see Section 4.3.1.
//= RFC 9204 section 4.3.1
//# The new capacity MUST be lower than or equal to the limit described in Section 3.2.3.
#[test]
fn capacity_is_the_smaller_of_both_limits() {
    for (own, peers, instruction) in
        [(4096, 220, &[0x3f, 0xbd, 0x01][..]), (220, 65536, &[0x3f, 0xbd, 0x01])]
    {
        let mut encoder = Encoder::with_max_table_capacity(own);
        encoder.set_peer_settings(peers, 16);
        encoder.encode(0, [FieldLine::new(b"user-agent", b"a")], &mut BytesMut::new());
        assert!(encoder.take_instructions().unwrap().starts_with(instruction));
    }
}

//= RFC 9204 section 4.3.1
//# This MUST NOT cause the eviction of entries that are not evictable; see Section 2.1.1.
#[test]
fn capacity_is_set_once_before_the_first_insertion() {
    let mut pair = Pair::new(150, 16);
    for stream in 0..20 {
        let agent = format!("agent {stream} {}", "a".repeat(50));
        let section = pair.encode(stream * 4, &[("user-agent", &agent)]);
        let instructions = pair.encoder.take_instructions().unwrap();
        // One instruction each, the capacity before the first.
        assert_eq!(instructions[0] & 0xe0 == 0x20, stream == 0, "{instructions:x?}");
        pair.decoder.handle_encoder_stream(&instructions).unwrap();
        assert!(pair.decode(stream * 4, &section).is_some());
        pair.acknowledge();
    }
}

//= RFC 9204 section 2.1.2
//# An encoder MUST limit the number of streams that could become blocked to the value of SETTINGS_QPACK_BLOCKED_STREAMS at
//# all times.
#[test]
fn streams_beyond_the_limit_refer_to_acknowledged_entries_only() {
    let mut pair = Pair::new(4096, 2);
    let sections: Vec<_> = (0..4).map(|stream| pair.encode(stream * 4, &[AGENT])).collect();
    let is_static: Vec<_> = sections.iter().map(|section| is_static_only(section)).collect();
    assert_eq!(is_static, [false, false, true, true]);
    // A stream that may already be blocked may refer to more.
    assert!(!is_static_only(&pair.encode(4, &[AGENT])));
    assert_eq!(pair.decode(0, &sections[0]), None);
    assert_eq!(pair.decode(4, &sections[1]), None);
    pair.insert();
    pair.acknowledge();
    let sections: Vec<_> = (4..20).map(|stream| pair.encode(stream * 4, &[AGENT])).collect();
    assert!(sections.iter().all(|section| !is_static_only(section)));
}

#[test]
fn peer_without_blocked_streams_gets_only_acknowledged_references() {
    let mut pair = Pair::new(4096, 0);
    let first = pair.encode(0, &[AGENT]);
    assert!(is_static_only(&first));
    assert!(pair.insert() > 0);
    assert!(is_static_only(&pair.encode(4, &[AGENT])));
    pair.acknowledge();
    let third = pair.encode(8, &[AGENT]);
    assert_eq!(third.len(), 3);
    assert!(pair.decode(8, &third).is_some());
}

//= RFC 9204 section 2.1.1
//# If the dynamic table does not contain enough room for a new entry without evicting other entries, and the entries that
//# would be evicted are not evictable, the encoder MUST NOT insert that entry into the dynamic table (including duplicates of
//# existing entries).
#[test]
fn entries_in_use_are_not_evicted() {
    let agents: Vec<String> = (0..4).map(|number| format!("{number}{}", "a".repeat(59))).collect();
    // Capacity for one entry of 102 bytes.
    let mut pair = Pair::new(150, 16);
    let first = pair.encode(0, &[("user-agent", &agents[0])]);
    assert!(pair.insert() > 0);
    // Not acknowledged yet, although no section of another stream refers to it.
    assert!(is_static_only(&pair.encode(4, &[("user-agent", &agents[1])])));
    // Received, but the section that refers to it is not acknowledged.
    pair.acknowledge();
    assert!(is_static_only(&pair.encode(8, &[("user-agent", &agents[1])])));
    assert!(pair.decode(0, &first).is_some());
    pair.acknowledge();
    let second = pair.encode(12, &[("user-agent", &agents[1])]);
    assert!(!is_static_only(&second));
    // References of the section being encoded count as well.
    pair.insert();
    pair.decode(12, &second);
    pair.acknowledge();
    let both = pair.encode(16, &[("user-agent", &agents[1]), ("user-agent", &agents[2])]);
    assert_eq!(pair.insert(), 0);
    assert!(pair.decode(16, &both).is_some());
}

#[test]
fn cancelled_streams_release_their_entries() {
    let mut pair = Pair::new(150, 16);
    let long = "b".repeat(60);
    pair.encode(0, &[AGENT]);
    pair.encode(0, &[AGENT]);
    pair.insert();
    pair.acknowledge();
    assert!(is_static_only(&pair.encode(4, &[("user-agent", &long)])));
    pair.decoder.cancel_stream(0);
    pair.acknowledge();
    assert!(!is_static_only(&pair.encode(8, &[("user-agent", &long)])));
    // No section of stream 0 awaits an acknowledgment any more.
    let error = DecoderStreamError::UnexpectedAcknowledgment { stream_id: 0 };
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x80]), Err(error));
}

#[test]
fn entries_about_to_be_evicted_are_copied() {
    // In the smaller table the copy evicts its original; in the larger one both exist for a while.
    for capacity in [400, 1000] {
        let mut pair = Pair::new(capacity, 16);
        pair.exchange(0, &[AGENT]);
        for stream in 1..40 {
            let value = format!("{stream}{}", "v".repeat(30));
            // Two streams, because a line is inserted on its second use.
            pair.exchange(stream * 12, &[("x-a", &value)]);
            pair.exchange(stream * 12 + 4, &[("x-a", &value)]);
            // Found, or duplicated with a byte or two, but neither spelled out nor inserted again.
            let (section, inserted) = pair.exchange(stream * 12 + 8, &[AGENT]);
            assert!(section <= 4 && inserted < 3, "{section} {inserted}");
            assert!(pair.encoder.table_size() <= capacity);
        }
    }
}

//= RFC 9204 section 3.2.2
//# The encoder MUST NOT cause a dynamic table entry to be evicted unless that entry is evictable; see Section 2.1.1.
#[test]
fn entries_that_may_not_have_arrived_are_not_evicted() {
    let long = "b".repeat(60);
    // No section may refer to them.
    let mut pair = Pair::new(150, 0);
    pair.encode(0, &[AGENT]);
    assert!(pair.insert() > 0);
    pair.encode(4, &[("user-agent", &long)]);
    assert_eq!(pair.insert(), 0);
    pair.acknowledge();
    pair.encode(8, &[("user-agent", &long)]);
    assert!(pair.insert() > 0);
}

//= RFC 9204 section 4.4.1
//# If an encoder receives a Section Acknowledgment instruction referring to a stream on which every encoded field section
//# with a non-zero Required Insert Count has already been acknowledged, this MUST be treated as a connection error of type
//# QPACK_DECODER_STREAM_ERROR.
#[test]
fn second_acknowledgment_is_refused() {
    let mut pair = Pair::new(4096, 16);
    pair.encode(4, &[AGENT]);
    pair.encode(8, &[("cookie", "a")]);
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x84]), Ok(()));
    let error = |stream_id| Err(DecoderStreamError::UnexpectedAcknowledgment { stream_id });
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x84]), error(4));
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x88]), error(8));
}

//= RFC 9204 section 4.4.3
//# An encoder that receives an Increment field equal to zero, or one that increases the Known Received Count beyond what
//# the encoder has sent, MUST treat this as a connection error of type QPACK_DECODER_STREAM_ERROR.
#[test]
fn increment_beyond_the_insertions_is_refused() {
    let exceeded = Err(DecoderStreamError::IncrementExceedsInserts);
    let mut pair = Pair::new(4096, 16);
    pair.encode(0, &[AGENT, ("server", "a")]);
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x03]), exceeded);
    let mut pair = Pair::new(4096, 16);
    pair.encode(0, &[AGENT, ("server", "a")]);
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x01]), Ok(()));
    // The acknowledgment covers both insertions.
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x80]), Ok(()));
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x01]), exceeded);
}

#[test]
fn section_above_the_limit_awaits_no_acknowledgment() {
    let mut pair = Pair::new(4096, 16);
    pair.exchange(0, &[AGENT]);
    let lines =
        [FieldLine::new(AGENT.0.as_bytes(), AGENT.1.as_bytes()), FieldLine::new(b"x-a", b"b")];
    let mut section = BytesMut::from(&b"before"[..]);
    let size = AGENT.0.len() + AGENT.1.len() + 32 + 36;
    let refused = pair.encoder.encode_within(size as u64 - 1, 4, lines, &mut section);
    assert_eq!(refused, Err(SectionTooLarge { size: size as u64 }));
    assert_eq!(section, "before");
    let error = DecoderStreamError::UnexpectedAcknowledgment { stream_id: 4 };
    assert_eq!(pair.encoder.handle_decoder_stream(&[0x84]), Err(error));
    assert_eq!(pair.encoder.encode_within(size as u64, 8, lines, &mut section), Ok(size as u64));
}

/// Memory for a peer that acknowledges nothing stays bounded, and its sections stay decodable.
#[test]
fn peer_that_never_acknowledges_costs_bounded_memory() {
    let mut pair = Pair::new(4096, 1000);
    let mut instructions = 0;
    for stream in 0..2000_u64 {
        let value = format!("value {} of some length", stream / 2);
        let section = pair.encode(stream * 4, &[AGENT, ("x-a", &value), ("x-b", &value)]);
        instructions += pair.insert();
        assert!(pair.decode(stream * 4, &section).is_some());
        assert!(stream < 512 || is_static_only(&section));
    }
    // Entries that are not acknowledged are not evicted, so the table was filled once.
    assert!(instructions <= 4096, "{instructions}");
    assert!(pair.encoder.table_size() <= 4096);
}

/// A peer that acknowledges unsent instructions: pending instructions do not accumulate.
#[test]
fn encoder_stream_backlog_stops_insertions() {
    let mut pair = Pair::new(4096, 16);
    pair.encode(0, &[AGENT]);
    assert!(pair.encoder.take_instructions().is_some());
    pair.encoder.set_backlogged(true);
    // No reference to entries that may not have arrived, and no insertion.
    assert!(is_static_only(&pair.encode(4, &[AGENT, ("server", "a")])));
    assert_eq!(pair.encoder.take_instructions(), None);
    pair.encoder.handle_decoder_stream(&[0x01]).unwrap();
    assert!(!is_static_only(&pair.encode(8, &[AGENT, ("server", "a")])));
    pair.encoder.set_backlogged(false);
    pair.encode(12, &[("server", "a")]);
    assert!(pair.encoder.take_instructions().is_some());

    let mut pair = Pair::new(4096, 16);
    for stream in 0..3000_u64 {
        let value = format!("{stream}{}", "v".repeat(100));
        pair.encode(stream * 4, &[("user-agent", &value)]);
        // Fails if the table is full of entries in use and nothing was inserted.
        let _ = pair.encoder.handle_decoder_stream(&[0x01]);
        let mut cancel = Vec::new();
        pronghorn_qpack::integer::encode(0x40, 6, stream * 4, &mut cancel);
        pair.encoder.handle_decoder_stream(&cancel).unwrap();
    }
    let pending = pair.encoder.take_instructions().unwrap().len();
    assert!(pending > 16_000 && pending < 17_000, "{pending}");
}

#[test]
fn prefix_of_many_insertions_is_encoded() {
    let mut pair = Pair::new(1 << 20, 16);
    for stream in 0..2000_u64 {
        let value = format!("agent {stream}");
        let section =
            pair.encode(stream * 4, &[(":path", "/x"), ("user-agent", &value), ("server", "a")]);
        pair.insert();
        let expected = format!("[:path: /x, user-agent: {value}, server: a]");
        assert_eq!(pair.decode(stream * 4, &section), Some(expected));
        pair.acknowledge();
    }
}

#[test]
fn reordered_lines_are_encoded_correctly() {
    let mut pair = Pair::new(4096, 10);
    let head =
        [(":status", "200"), AGENT, ("etag", "\"1\""), ("content-length", "13"), ("x-a", "b")];
    for stream_id in 0..3 {
        pair.exchange(4 * stream_id, &head);
    }
    // The rotations put each line in each other line's position. The result does not depend on the
    // order.
    let (len, inserted) = pair.exchange(12, &head);
    assert_eq!(inserted, 0);
    for turn in 0..head.len() {
        let mut rotated = head;
        rotated.rotate_left(turn);
        assert_eq!(pair.exchange(16 + 8 * turn as u64, &rotated), (len, 0), "rotated by {turn}");
        assert_eq!(
            pair.exchange(20 + 8 * turn as u64, &rotated),
            (len, 0),
            "rotated by {turn}, again"
        );
    }
    // A static entry is found in the position of another value of its name.
    let (shorter, _) = pair.exchange(
        100,
        &[(":status", "200"), AGENT, ("etag", "\"1\""), ("content-length", "0"), ("x-a", "b")],
    );
    assert!(shorter < len);
}

#[test]
fn line_that_became_a_secret_is_literal() {
    let mut pair = Pair::new(4096, 10);
    for stream_id in 0..3 {
        pair.exchange(4 * stream_id, &[AGENT]);
    }
    let mut section = BytesMut::new();
    let secret = FieldLine::never_indexed(AGENT.0.as_bytes(), AGENT.1.as_bytes());
    pair.encoder.encode(12, [secret], &mut section);
    assert!(is_static_only(&section) && section.len() > AGENT.1.len() / 2, "{section:?}");
}
