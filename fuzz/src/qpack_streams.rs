//! Arbitrary bytes on the encoder stream and as field sections, received by a decoder.

use pronghorn_qpack::{Decoded, Decoder, DecompressionError, FieldSection};

use crate::input::Input;

/// Small, so that entries are evicted soon.
const CAPACITY: u64 = 300;
const BLOCKED_STREAMS: u64 = 3;
/// Maximum size of a field section.
const LIMIT: u64 = 2000;

enum Step<'a> {
    Instructions(&'a [u8]),
    Section(u64, &'a [u8]),
    Cancel(u64),
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut steps = Vec::new();
    while !input.is_empty() {
        let choice = input.byte();
        let stream = u64::from(choice >> 4);
        steps.push(match choice & 3 {
            0 => Step::Cancel(stream),
            1 => Step::Instructions(input.piece()),
            _ => Step::Section(stream, input.piece()),
        });
    }
    assert_eq!(feed(&steps, usize::MAX), feed(&steps, 1), "cut into bytes");
}

fn feed(steps: &[Step<'_>], cut: usize) -> Vec<String> {
    let mut decoder = Decoder::with_table(CAPACITY, BLOCKED_STREAMS);
    let mut said = Vec::new();
    let mut blocked: Vec<(u64, &[u8])> = Vec::new();
    for step in steps {
        match step {
            Step::Instructions(bytes) => {
                if let Err(error) =
                    bytes.chunks(cut).try_for_each(|piece| decoder.handle_encoder_stream(piece))
                {
                    said.push(format!("{error:?}"));
                    return said;
                }
                while let Some(stream) = decoder.poll_unblocked() {
                    let place = blocked
                        .iter()
                        .position(|(id, _)| *id == stream)
                        .expect("a stream that was never blocked");
                    let (_, section) = blocked.remove(place);
                    // The section may be blocked again: if required entries were evicted meanwhile,
                    // which no valid encoder does, its prefix denotes another insert count.
                    match decode(&mut decoder, stream, section, &mut said) {
                        Ok(Decoded::Blocked) => blocked.push((stream, section)),
                        Ok(Decoded::Complete) => {}
                        Err(_) => return said,
                    }
                }
            }
            // A blocked section must be decoded before others of its stream.
            Step::Section(stream, _) if blocked.iter().any(|(id, _)| id == stream) => {}
            Step::Section(stream, section) => {
                match decode(&mut decoder, *stream, section, &mut said) {
                    Ok(Decoded::Blocked) => blocked.push((*stream, section)),
                    Ok(Decoded::Complete) => {}
                    Err(_) => return said,
                }
            }
            Step::Cancel(stream) => {
                decoder.cancel_stream(*stream);
                blocked.retain(|(id, _)| id != stream);
            }
        }
        assert!(decoder.table_size() <= CAPACITY && blocked.len() as u64 <= BLOCKED_STREAMS);
        said.push(format!("{:?}", decoder.take_instructions()));
    }
    said
}

fn decode(
    decoder: &mut Decoder,
    stream: u64,
    section: &[u8],
    said: &mut Vec<String>,
) -> Result<Decoded, DecompressionError> {
    let mut lines = FieldSection::new();
    let decoded = decoder.decode(stream, section, LIMIT, &mut lines);
    if matches!(decoded, Ok(Decoded::Complete)) {
        assert!(lines.size() <= LIMIT);
        lines.iter().for_each(|line| said.push(format!("{line:?}")));
    }
    said.push(format!("{stream} {decoded:?}"));
    decoded
}
