//! FastCGI application output: the result is the same however the bytes are split, and the response
//! head is bounded.

use pronghorn_fastcgi::{Decoder, Ended, Event, Head, HeadError, MAX_HEAD_BYTES, RecordError};

use crate::input::Input;

/// Result of reading a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    output: Vec<u8>,
    complaints: Vec<u8>,
    ended: Vec<Ended>,
    error: Option<RecordError>,
}

fn read(stream: &[u8], size: usize) -> Read {
    let (mut decoder, mut read) = (Decoder::default(), Read::default());
    for piece in stream.chunks(size) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.read() {
                Ok(Some(Event::Output(piece))) => read.output.extend_from_slice(&piece),
                Ok(Some(Event::Complaint(piece))) => read.complaints.extend_from_slice(&piece),
                Ok(Some(Event::End(ended))) => read.ended.push(ended),
                Ok(None) => break,
                Err(error) => {
                    read.error = Some(error);
                    return read;
                }
            }
        }
        // Unprocessed bytes are less than a record header or the rest of a record.
        assert!(decoder.buffer().len() < 8);
    }
    read
}

/// Returns the status and the bytes after the response head.
fn head(output: &[u8], size: usize) -> Result<Option<(u16, Vec<u8>)>, HeadError> {
    let mut head = Head::default();
    let mut pieces = output.chunks(size);
    let mut taken = 0;
    while let Some(piece) = pieces.next() {
        taken += piece.len();
        if let Some(response) = head.push(piece)? {
            assert!((200..600).contains(&response.status().as_u16()));
            assert!(!response.headers().contains_key("transfer-encoding"));
            let rest = pieces.flatten();
            return Ok(Some((
                response.status().as_u16(),
                response.body().iter().chain(rest).copied().collect(),
            )));
        }
        assert!(taken <= MAX_HEAD_BYTES, "an unterminated head is rejected");
    }
    Ok(None)
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let size = 1 + input.below(20);
    let mut stream = Vec::new();
    while !input.is_empty() {
        let (kind, padding, piece) = (input.byte(), input.byte() % 9, input.piece());
        if kind & 0x80 == 0 {
            // Record types that an application sends, and some others.
            stream.extend([1, 3 + kind % 6, 0, 1, 0, piece.len() as u8, padding, 0]);
        }
        stream.extend_from_slice(piece);
        stream.resize(stream.len() + usize::from(padding), 0);
    }
    let whole = read(&stream, stream.len().max(1));
    assert_eq!(read(&stream, size), whole);
    assert_eq!(head(&whole.output, size), head(&whole.output, whole.output.len().max(1)));
}
