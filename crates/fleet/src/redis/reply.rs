//! Replies in RESP2, the protocol that each Redis server speaks by default.

use bytes::{Buf, Bytes, BytesMut};

/// Longest line of a reply in bytes: a number, a status or an error.
const LINE_BYTES: usize = 4 << 10;
/// Largest reply in bytes, with what its values take in memory. The slots of a cluster with
/// thousands of nodes fit; a session is far smaller.
const REPLY_BYTES: usize = 1 << 20;
/// Deepest nesting of arrays. `CLUSTER SLOTS` has four levels.
const DEPTH: usize = 8;

/// One reply of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A status such as `OK`.
    Status(String),
    /// An error: a code in capitals, then a message.
    Error(String),
    Integer(i64),
    Bulk(Bytes),
    /// A value that does not exist.
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    /// Returns a string that is valid UTF-8.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Status(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }
}

/// Why the bytes from a server are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidReply {
    #[error("the reply is not in the protocol of Redis")]
    Malformed,
    #[error("the reply is larger than {REPLY_BYTES} bytes")]
    TooLarge,
    #[error("the reply nests more than {DEPTH} arrays")]
    TooDeep,
}

/// Takes replies out of the bytes from a server. Bytes go into [`Decoder::buffer`], then
/// [`Decoder::next`] is called until it returns nothing.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    /// Number of bytes at the front of the buffer that contain no end of a line.
    scanned: usize,
    /// Unfinished arrays from the outermost, each with the number of missing values.
    open: Vec<(usize, Vec<Reply>)>,
    /// Bytes that the unfinished reply has used.
    used: usize,
}

impl Decoder {
    /// Returns the buffer that receives what was read.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Returns the next complete reply.
    pub(crate) fn next(&mut self) -> Result<Option<Reply>, InvalidReply> {
        while let Some(value) = self.value()? {
            if let Some(reply) = self.close(value) {
                self.used = 0;
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// Returns the next value. An array that has values counts as one when it is complete, so this
    /// continues with its first.
    fn value(&mut self) -> Result<Option<Reply>, InvalidReply> {
        loop {
            let Some(end) = self.line_end()? else { return Ok(None) };
            let line = &self.buffer[..end];
            let (kind, rest) = line.split_first().ok_or(InvalidReply::Malformed)?;
            let value = match kind {
                b'+' => Reply::Status(text(rest)?),
                b'-' => Reply::Error(text(rest)?),
                b':' => Reply::Integer(number(rest)?),
                b'$' => match length(rest)? {
                    None => Reply::Nil,
                    Some(length) => return self.bulk(end + 2, length),
                },
                b'*' => match length(rest)? {
                    None => Reply::Nil,
                    Some(0) => Reply::Array(Vec::new()),
                    Some(length) => {
                        self.consume(end + 2)?;
                        if self.open.len() == DEPTH {
                            return Err(InvalidReply::TooDeep);
                        }
                        // Its vector grows with what arrives, not with what is announced.
                        self.open.push((length, Vec::new()));
                        continue;
                    }
                },
                _ => return Err(InvalidReply::Malformed),
            };
            self.consume(end + 2)?;
            return Ok(Some(value));
        }
    }

    fn bulk(&mut self, start: usize, length: usize) -> Result<Option<Reply>, InvalidReply> {
        if length > REPLY_BYTES - self.used.min(REPLY_BYTES) {
            return Err(InvalidReply::TooLarge);
        }
        let end = start + length;
        if self.buffer.len() < end + 2 {
            return Ok(None);
        }
        if self.buffer[end..end + 2] != *b"\r\n" {
            return Err(InvalidReply::Malformed);
        }
        // A copy, so that a small value does not keep the whole buffer.
        let value = Bytes::copy_from_slice(&self.buffer[start..end]);
        self.consume(end + 2)?;
        Ok(Some(Reply::Bulk(value)))
    }

    /// Returns the length of the line at the front without its end.
    fn line_end(&mut self) -> Result<Option<usize>, InvalidReply> {
        let unseen = &self.buffer[self.scanned..];
        if let Some(at) = unseen.windows(2).position(|pair| pair == b"\r\n") {
            let end = self.scanned + at;
            // The same line is looked for again if its value is not complete.
            self.scanned = end;
            return if end > LINE_BYTES { Err(InvalidReply::TooLarge) } else { Ok(Some(end)) };
        }
        self.scanned = self.buffer.len().saturating_sub(1);
        if self.scanned > LINE_BYTES {
            return Err(InvalidReply::TooLarge);
        }
        Ok(None)
    }

    fn consume(&mut self, bytes: usize) -> Result<(), InvalidReply> {
        self.buffer.advance(bytes);
        self.scanned = 0;
        self.used += bytes + size_of::<Reply>();
        if self.used > REPLY_BYTES { Err(InvalidReply::TooLarge) } else { Ok(()) }
    }

    /// Adds a value to the innermost array; returns the reply if it is now complete.
    fn close(&mut self, mut value: Reply) -> Option<Reply> {
        while let Some((missing, mut values)) = self.open.pop() {
            values.push(value);
            if missing > 1 {
                self.open.push((missing - 1, values));
                return None;
            }
            value = Reply::Array(values);
        }
        Some(value)
    }
}

fn text(bytes: &[u8]) -> Result<String, InvalidReply> {
    // Printed in log lines.
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidReply::Malformed)?;
    if text.chars().any(char::is_control) { Err(InvalidReply::Malformed) } else { Ok(text.into()) }
}

fn number(bytes: &[u8]) -> Result<i64, InvalidReply> {
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidReply::Malformed)?;
    text.parse().map_err(|_| InvalidReply::Malformed)
}

/// Reads a length; -1 stands for a value that does not exist.
fn length(bytes: &[u8]) -> Result<Option<usize>, InvalidReply> {
    match number(bytes)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| InvalidReply::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Result<Vec<Reply>, InvalidReply> {
        let mut decoder = Decoder::default();
        let mut replies = Vec::new();
        for chunk in chunks {
            decoder.buffer().extend_from_slice(chunk);
            while let Some(reply) = decoder.next()? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    fn encode(reply: &Reply, to: &mut Vec<u8>) {
        match reply {
            Reply::Status(text) => to.extend(format!("+{text}\r\n").bytes()),
            Reply::Error(text) => to.extend(format!("-{text}\r\n").bytes()),
            Reply::Integer(number) => to.extend(format!(":{number}\r\n").bytes()),
            Reply::Nil => to.extend(b"$-1\r\n"),
            Reply::Bulk(bytes) => {
                to.extend(format!("${}\r\n", bytes.len()).bytes());
                to.extend_from_slice(bytes);
                to.extend(b"\r\n");
            }
            Reply::Array(values) => {
                to.extend(format!("*{}\r\n", values.len()).bytes());
                for value in values {
                    encode(value, to);
                }
            }
        }
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            "[ -~]{0,20}".prop_map(Reply::Status),
            "[A-Z]{1,9} [ -~]{0,20}".prop_map(Reply::Error),
            any::<i64>().prop_map(Reply::Integer),
            Just(Reply::Nil),
            proptest::collection::vec(any::<u8>(), 0..40)
                .prop_map(|bytes| Reply::Bulk(bytes.into())),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            proptest::collection::vec(inner, 0..5).prop_map(Reply::Array)
        })
    }

    proptest! {
        #[test]
        fn replies_round_trip_in_pieces_of_any_size(
            sent in proptest::collection::vec(replies(), 1..5),
            size in 1..9_usize,
        ) {
            let mut bytes = Vec::new();
            for reply in &sent {
                encode(reply, &mut bytes);
            }
            let chunks: Vec<_> = bytes.chunks(size).collect();
            prop_assert_eq!(decode(&chunks), Ok(sent.clone()));
            prop_assert_eq!(decode(&[&bytes]), Ok(sent));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[&bytes]);
        }

        #[test]
        fn almost_valid_bytes_never_panic(
            text in "([*$:+-][0-9-]{0,20}\r\n|[a-z\r\n]{0,3}){0,20}",
        ) {
            let _ = decode(&[text.as_bytes()]);
        }
    }

    #[test]
    fn announced_lengths_allocate_nothing() {
        for huge in ["*9223372036854775807\r\n", "*2000000000\r\n*2000000000\r\n:1\r\n"] {
            assert_eq!(decode(&[huge.as_bytes()]), Ok(vec![]), "waits for values");
        }
        for huge in ["$9223372036854775807\r\n", "$1048577\r\n"] {
            assert_eq!(decode(&[huge.as_bytes()]), Err(InvalidReply::TooLarge));
        }
    }

    #[test]
    fn large_deep_and_malformed_replies_are_refused() {
        let endless_line = vec![b'+'; LINE_BYTES + 3];
        assert_eq!(decode(&[&endless_line]), Err(InvalidReply::TooLarge));
        assert_eq!(decode(&[&b"*1\r\n".repeat(9)]), Err(InvalidReply::TooDeep));
        let mut many = b"*2000000\r\n".to_vec();
        many.extend(b":1\r\n".repeat(60_000));
        assert_eq!(decode(&[&many]), Err(InvalidReply::TooLarge));
        for malformed in [
            "\r\n",
            "hello\r\n",
            "$-2\r\n",
            ":x\r\n",
            "$1\r\nab\r\n",
            "$\r\n",
            "-a\tb\r\n",
            ":\r\n",
        ] {
            let refused = decode(&[malformed.as_bytes()]);
            assert_eq!(refused, Err(InvalidReply::Malformed), "{malformed:?}");
        }
    }
}
