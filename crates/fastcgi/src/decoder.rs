//! Decoding of the records that an application sends (section 3.3).

use bytes::{Buf, Bytes, BytesMut};

use crate::record::kind::{END_REQUEST, STDERR, STDOUT};
use crate::record::{REQUEST, VERSION};

const HEADER_BYTES: usize = 8;
/// The request ID of management records, which belong to no request.
const MANAGEMENT: u16 = 0;
const END_REQUEST_BYTES: usize = 8;

/// An event decoded from an application's records.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A piece of the response: head and body.
    Output(Bytes),
    /// A piece of the application's error output.
    Complaint(Bytes),
    /// The end of the request.
    End(Ended),
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The response is complete.
    Complete,
    /// The application is overloaded and did not process the request.
    Overloaded,
    /// The application refused the request, for example because it does not support the role.
    Refused,
}

/// A violation of FastCGI by the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A record has another version than 1.
    #[error("not FastCGI: invalid record version {0}")]
    Version(u8),
    /// A record names another request than 1, the only one on the connection.
    #[error("record for unknown request {0}")]
    Request(u16),
    /// A record type that only web servers send.
    #[error("unexpected record type {0}")]
    Kind(u8),
    /// The end-request record has another length than 8.
    #[error("invalid end-request record: {0} bytes, expected 8")]
    End(usize),
}

/// Decodes records. Content is returned as it arrives, before its record is complete.
#[derive(Default)]
pub struct Decoder {
    buffer: BytesMut,
    record: Option<Record>,
}

/// The rest of a partly received record.
struct Record {
    kind: u8,
    is_of_request: bool,
    content: usize,
    padding: usize,
}

impl Decoder {
    /// Returns the buffer that received bytes are appended to.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the next event, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// If the bytes are not FastCGI, or not for this request. Decoding cannot continue after an
    /// error.
    pub fn read(&mut self) -> Result<Option<Event>, RecordError> {
        loop {
            if self.record.is_none() {
                self.record = self.header()?;
            }
            let Some(record) = &mut self.record else { return Ok(None) };
            if record.content == 0 {
                let padding = record.padding.min(self.buffer.len());
                self.buffer.advance(padding);
                record.padding -= padding;
                if record.padding > 0 {
                    return Ok(None);
                }
                self.record = None;
                continue;
            }
            if record.is_of_request && record.kind == END_REQUEST {
                if self.buffer.len() < END_REQUEST_BYTES {
                    return Ok(None);
                }
                record.content = 0;
                let content = self.buffer.split_to(END_REQUEST_BYTES);
                // Four bytes of application status, then the protocol status.
                return Ok(Some(Event::End(match content[4] {
                    0 => Ended::Complete,
                    2 => Ended::Overloaded,
                    _ => Ended::Refused,
                })));
            }
            if self.buffer.is_empty() {
                return Ok(None);
            }
            let piece = self.buffer.split_to(record.content.min(self.buffer.len())).freeze();
            record.content -= piece.len();
            match record.kind {
                STDOUT if record.is_of_request => return Ok(Some(Event::Output(piece))),
                STDERR if record.is_of_request => return Ok(Some(Event::Complaint(piece))),
                _ => {}
            }
        }
    }

    fn header(&mut self) -> Result<Option<Record>, RecordError> {
        if let Some(&version) = self.buffer.first()
            && version != VERSION
        {
            return Err(RecordError::Version(version));
        }
        if self.buffer.len() < HEADER_BYTES {
            return Ok(None);
        }
        let mut header = self.buffer.split_to(HEADER_BYTES);
        header.advance(1);
        let (kind, request, content, padding) =
            (header.get_u8(), header.get_u16(), header.get_u16().into(), header.get_u8().into());
        let is_of_request = match (request, kind) {
            // No management record was sent, so management replies are ignored.
            (MANAGEMENT, _) => false,
            (REQUEST, STDOUT | STDERR) => true,
            (REQUEST, END_REQUEST) if content == END_REQUEST_BYTES => true,
            (REQUEST, END_REQUEST) => return Err(RecordError::End(content)),
            (REQUEST, _) => return Err(RecordError::Kind(kind)),
            _ => return Err(RecordError::Request(request)),
        };
        Ok(Some(Record { kind, is_of_request, content, padding }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u8, request: u16, content: &[u8], padding: u8) -> Vec<u8> {
        let mut record = vec![VERSION, kind];
        record.extend(request.to_be_bytes());
        record.extend((content.len() as u16).to_be_bytes());
        record.extend([padding, 0]);
        record.extend(content);
        record.resize(record.len() + usize::from(padding), 7);
        record
    }

    fn end(protocol_status: u8) -> Vec<u8> {
        record(END_REQUEST, 1, &[0, 0, 0, 1, protocol_status, 0, 0, 0], 0)
    }

    type Read = (Vec<u8>, Vec<u8>, Option<Ended>);

    /// Decodes bytes in pieces of this size: output and error output as wholes.
    fn read(bytes: &[u8], size: usize) -> Result<Read, RecordError> {
        let (mut decoder, mut output, mut complaints, mut ended) =
            (Decoder::default(), Vec::new(), Vec::new(), None);
        for piece in bytes.chunks(size) {
            decoder.buffer().extend_from_slice(piece);
            while let Some(event) = decoder.read()? {
                match event {
                    Event::Output(piece) => output.extend_from_slice(&piece),
                    Event::Complaint(piece) => complaints.extend_from_slice(&piece),
                    Event::End(how) => ended = Some(how),
                }
            }
        }
        Ok((output, complaints, ended))
    }

    #[test]
    fn end_request_record_gives_the_outcome() {
        for (status, how) in
            [(0, Ended::Complete), (1, Ended::Refused), (2, Ended::Overloaded), (3, Ended::Refused)]
        {
            assert_eq!(read(&end(status), 100), Ok((vec![], vec![], Some(how))));
        }
    }

    #[test]
    fn invalid_record_is_an_error() {
        assert_eq!(read(b"HTTP/1.1 400 Bad Request", 1), Err(RecordError::Version(b'H')));
        assert_eq!(read(&record(STDOUT, 2, b"x", 0), 100), Err(RecordError::Request(2)));
        assert_eq!(read(&record(4, 1, b"x", 0), 100), Err(RecordError::Kind(4)));
        assert_eq!(read(&record(END_REQUEST, 1, b"x", 0), 100), Err(RecordError::End(1)));
    }

    #[test]
    fn management_records_are_skipped() {
        let bytes = [record(11, 0, &[9; 8], 3), record(STDOUT, 1, b"a", 0), end(0)].concat();
        assert_eq!(read(&bytes, 3), Ok((b"a".to_vec(), vec![], Some(Ended::Complete))));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_result(
            records in prop::collection::vec((prop::bool::ANY, prop::collection::vec(any::<u8>(), 0..40), 0u8..9), 0..8),
            size in 1usize..30,
        ) {
            let (mut bytes, mut output, mut complaints) = (Vec::new(), Vec::new(), Vec::new());
            for (is_output, content, padding) in &records {
                bytes.extend(record(if *is_output { STDOUT } else { STDERR }, 1, content, *padding));
                if *is_output { &mut output } else { &mut complaints }.extend_from_slice(content);
            }
            bytes.extend(end(0));
            prop_assert_eq!(read(&bytes, size), Ok((output, complaints, Some(Ended::Complete))));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), size in 1usize..30) {
            let _ = read(&bytes, size);
            // Nearly all other input ends at the first byte.
            let _ = read(&[&[VERSION, STDOUT, 0, 1][..], &bytes].concat(), size);
        }
    }
}
