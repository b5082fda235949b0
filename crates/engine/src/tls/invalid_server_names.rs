//! Server names (SNI) that are not DNS names: a host with its port, spaces, labels that are too
//! long, non-ASCII letters.
//!
//! Clients send them, and other servers ignore them, but rustls ends the handshake. So rustls is
//! shown such an extension under another number, which it ignores, while the handshake hash covers
//! what the client really sent: both sides have the same transcript. A client that itself uses that
//! number only makes its own handshake fail. On such a connection a client certificate over TLS 1.2
//! cannot be verified.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
use rustls::pki_types::ServerName;
use rustls::{SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

use super::client_hello::{
    CLIENT_HELLO_BYTES, MESSAGE_HEADER_BYTES, RECORD_HEADER_BYTES, SERVER_NAME, extension, length,
};

/// Number for private use (RFC 8447, section 7) that replaces it.
const REPLACEMENT: u16 = 0xff6e;
const CLIENT_HELLO: u8 = 1;
/// Content types of records.
const HANDSHAKE: u8 = 22;
const RECORDS: std::ops::RangeInclusive<u8> = 20..=23;

/// Renumbers the extension of a whole ClientHello if its name is not a DNS name.
fn renumber(message: &mut [u8]) {
    if let Some((at, list)) = extension(message, SERVER_NAME)
        && is_invalid_name(list)
        && extension(message, REPLACEMENT).is_none()
    {
        message[at..at + 2].copy_from_slice(&REPLACEMENT.to_be_bytes());
    }
}

/// Returns the handshake messages as the client sent them, from those that rustls has seen. The
/// last one may be truncated, as for a binder (RFC 8446, section 4.2.11.2).
fn original(messages: &[u8]) -> Cow<'_, [u8]> {
    let mut original = Cow::Borrowed(messages);
    let mut begin = 0;
    while let Some(&[kind, a, b, c]) = messages.get(begin..begin + MESSAGE_HEADER_BYTES) {
        let end = begin
            + MESSAGE_HEADER_BYTES
            + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
        let message = &messages[begin..end.min(messages.len())];
        if kind == CLIENT_HELLO
            && let Some((at, list)) = extension(message, REPLACEMENT)
            && is_invalid_name(list)
        {
            original.to_mut()[begin + at..begin + at + 2]
                .copy_from_slice(&SERVER_NAME.to_be_bytes());
        }
        begin = end;
    }
    original
}

/// Whether a server name list has exactly one host (RFC 6066, section 3) that is not a DNS name.
/// Lists of another form are left to rustls.
fn is_invalid_name(list: &[u8]) -> bool {
    let [a, b, 0, c, d, name @ ..] = list else { return false };
    length(&[*a, *b]) == name.len() + 3
        && length(&[*c, *d]) == name.len()
        && ServerName::try_from(name).is_err()
}

/// A client's handshake messages over QUIC. A ClientHello is buffered until it is complete.
#[derive(Debug, Default)]
pub(crate) struct BufferedClientHello(Vec<u8>);

impl BufferedClientHello {
    /// Adds received bytes. Returns those to be processed now, if any.
    pub(crate) fn read<'a>(&mut self, bytes: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        if self.0.is_empty() && bytes.first() != Some(&CLIENT_HELLO) {
            return Some(Cow::Borrowed(bytes));
        }
        self.0.extend_from_slice(bytes);
        let whole = match self.0.get(1..MESSAGE_HEADER_BYTES) {
            Some(size) => MESSAGE_HEADER_BYTES + length(size),
            None => return None,
        };
        if self.0.len() < whole && whole <= CLIENT_HELLO_BYTES {
            return None;
        }
        let mut held = std::mem::take(&mut self.0);
        if let Some(message) = held.get_mut(..whole) {
            renumber(message);
        }
        Some(Cow::Owned(held))
    }
}

/// A client's records over TCP. A record with a ClientHello is buffered until it is complete. A
/// ClientHello split across records is not inspected.
#[derive(Debug, Default)]
pub(crate) struct BufferedRecords {
    bytes: Vec<u8>,
    /// Number of leading bytes that may be read.
    ready: usize,
    /// Number of bytes after those that belong to a record passed on unbuffered.
    passing: usize,
    /// Range of the bytes that a ClientHello, or the beginning of one, has among those to be read.
    hello: Option<Range<usize>>,
}

impl BufferedRecords {
    /// Adds received bytes; [`BufferedRecords::take`] returns those that may be read.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        loop {
            let passed = self.passing.min(self.bytes.len() - self.ready);
            self.passing -= passed;
            self.ready += passed;
            // These bytes also suffice to recognize a clear-text request: rustls would end the
            // connection at the first byte that is not of a record.
            let Some(header) = self.bytes.get(self.ready..self.ready + RECORD_HEADER_BYTES) else {
                return;
            };
            let (kind, size) = (header[0], length(&header[3..]));
            let begin = self.ready + RECORD_HEADER_BYTES;
            match self.bytes.get(begin) {
                _ if !RECORDS.contains(&kind) => return self.pass_through(),
                Some(&CLIENT_HELLO) if kind == HANDSHAKE && size <= CLIENT_HELLO_BYTES => {
                    let Some(content) = self.bytes.get_mut(begin..begin + size) else { return };
                    renumber(content);
                    self.ready = begin + size;
                    self.hello.get_or_insert(begin..begin + size);
                }
                None if kind == HANDSHAKE && size > 0 => return,
                _ => self.passing = RECORD_HEADER_BYTES + size,
            }
        }
    }

    /// Passes on the buffered bytes and all that follow: they are not TLS, or the peer has ended.
    pub(crate) fn pass_through(&mut self) {
        (self.ready, self.passing) = (self.bytes.len(), usize::MAX);
    }

    /// Returns the ClientHello that can be read, if it is complete in one record.
    pub(crate) fn client_hello(&self) -> Option<&[u8]> {
        let content = self.bytes.get(self.hello.clone()?)?;
        let whole = MESSAGE_HEADER_BYTES + length(content.get(1..MESSAGE_HEADER_BYTES)?);
        content.get(..whole)
    }

    /// Returns the number of bytes that can be read.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready
    }

    /// Takes all bytes that can be read.
    pub(crate) fn take_ready(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.ready);
        (self.ready, self.hello) = (0, None);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// Whether no bytes are buffered.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Moves readable bytes into `buffer`, as far as they fit. Returns their number.
    pub(crate) fn take(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.ready.min(buffer.len());
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        self.ready -= count;
        self.hello = None;
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
        count
    }
}

/// A hash over the messages as the client sent them.
struct OriginalTranscript(&'static dyn Hash);

struct RestoringContext(Box<dyn Context>);

impl Hash for OriginalTranscript {
    fn start(&self) -> Box<dyn Context> {
        Box::new(RestoringContext(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(&original(data))
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

impl Context for RestoringContext {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Self(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        self.0.update(&original(data));
    }
}

/// Returns the provider of servers: [`super::provider()`] with hashes over the original messages.
/// There is one for the whole process, since rustls requires its parts to be `'static`.
pub(crate) fn server_provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || {
        let mut provider = CryptoProvider::clone(&super::provider::provider());
        for suite in &mut provider.cipher_suites {
            *suite = restoring(*suite);
        }
        Arc::new(provider)
    };
    PROVIDER.get_or_init(make).clone()
}

fn restoring(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let common = |common: &CipherSuiteCommon| CipherSuiteCommon {
        suite: common.suite,
        hash_provider: Box::leak(Box::new(OriginalTranscript(common.hash_provider))),
        confidentiality_limit: common.confidentiality_limit,
    };
    match suite {
        SupportedCipherSuite::Tls12(suite) => {
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common: common(&suite.common),
                prf_provider: suite.prf_provider,
                kx: suite.kx,
                sign: suite.sign,
                aead_alg: suite.aead_alg,
            })))
        }
        SupportedCipherSuite::Tls13(suite) => {
            SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                common: common(&suite.common),
                hkdf_provider: suite.hkdf_provider,
                aead_alg: suite.aead_alg,
                quic: suite.quic,
            })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let list: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| {
                [&kind.to_be_bytes()[..], &(content.len() as u16).to_be_bytes(), content].concat()
            })
            .collect();
        let body = [
            &[3, 3][..],
            &[9; 32],
            &[1, 7],
            &[0, 2, 0x13, 1],
            &[1, 0],
            &(list.len() as u16).to_be_bytes(),
            &list,
        ]
        .concat();
        [&[CLIENT_HELLO, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
    }

    fn named(name: &str) -> Vec<u8> {
        let size = name.len() as u16;
        [&(size + 3).to_be_bytes()[..], &[0], &size.to_be_bytes(), name.as_bytes()].concat()
    }

    fn with_name(name: &str) -> Vec<u8> {
        client_hello(&[(43, vec![2, 3, 4]), (SERVER_NAME, named(name)), (51, vec![5; 1200])])
    }

    const NO_NAMES: [&str; 5] = ["localhost:8443", "a b", "m\u{fc}ller.example", "", "-"];

    #[test]
    fn invalid_name_is_renumbered_and_restored() {
        for name in NO_NAMES.into_iter().chain([&*"a".repeat(70)]) {
            let sent = with_name(name);
            let mut seen = sent.clone();
            renumber(&mut seen);
            assert!(
                extension(&seen, SERVER_NAME).is_none() && extension(&seen, REPLACEMENT).is_some(),
                "{name}"
            );
            assert_eq!(*original(&seen), sent, "{name}");
            // Truncated as for a binder, and after another message.
            assert_eq!(*original(&seen[..seen.len() - 40]), sent[..sent.len() - 40], "{name}");
            let behind = |message: &[u8]| [&[254, 0, 0, 2, 1, 1][..], message].concat();
            assert_eq!(*original(&behind(&seen)), behind(&sent), "{name}");
        }
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        let mut messages: Vec<_> =
            ["localhost", "a.example.", "127.0.0.1", "A_b.example"].map(with_name).into();
        // Two names, a name of another kind, and no name at all.
        messages.push(client_hello(&[(SERVER_NAME, [named("a b"), named("c")].concat())]));
        messages.push(client_hello(&[(SERVER_NAME, vec![0, 4, 7, 0, 1, b'x'])]));
        messages.push(client_hello(&[(51, vec![5; 100])]));
        // The replacement number is in use.
        messages.push(client_hello(&[(SERVER_NAME, named("a b")), (REPLACEMENT, vec![])]));
        for sent in messages {
            let mut seen = sent.clone();
            renumber(&mut seen);
            assert_eq!(seen, sent);
            assert_eq!(*original(&sent), sent);
        }
    }

    #[test]
    fn broken_messages_are_passed_on() {
        let whole = with_name("a b");
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            renumber(&mut cut);
            let _ = original(&cut);
            let mut wild = whole.clone();
            wild[end] = 255;
            renumber(&mut wild);
            let _ = original(&wild);
        }
    }

    #[test]
    fn messages_and_records_come_whole_in_pieces_of_any_size() {
        let sent = with_name("a b");
        let mut seen = sent.clone();
        renumber(&mut seen);
        let record = |kind: u8, content: &[u8]| {
            [&[kind, 3, 1][..], &(content.len() as u16).to_be_bytes(), content].concat()
        };
        let others =
            [record(20, &[1]), record(23, &[7; 3000]), record(HANDSHAKE, &[20, 0, 0, 1, 9])]
                .concat();
        let wire = [record(HANDSHAKE, &sent), others.clone(), record(HANDSHAKE, &sent)].concat();
        let wanted = [record(HANDSHAKE, &seen), others, record(HANDSHAKE, &seen)].concat();
        for piece in [1, 2, 5, 7, 1000, 10_000] {
            let (mut held, mut read, mut buffer) =
                (BufferedRecords::default(), Vec::new(), [0; 600]);
            for bytes in wire.chunks(piece) {
                held.read(bytes);
                loop {
                    let count = held.take(&mut buffer);
                    if count == 0 {
                        break;
                    }
                    read.extend_from_slice(&buffer[..count]);
                }
            }
            assert!(read == wanted && held.is_empty(), "{piece}");

            let (mut held, mut read) = (BufferedClientHello::default(), Vec::new());
            sent.chunks(piece)
                .for_each(|bytes| read.extend(held.read(bytes).unwrap_or_default().into_owned()));
            assert_eq!(held.read(&[20, 0, 0, 0]).as_deref(), Some(&[20, 0, 0, 0][..]));
            assert_eq!(read, seen, "{piece}");
        }
    }

    #[test]
    fn other_records_are_not_buffered() {
        let endless = [&[HANDSHAKE, 3, 1, 0xff, 0xff, 1][..], &vec![7; 20_000]].concat();
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], &endless, &[21, 3, 1, 0, 2, 2, 40]] {
            let mut held = BufferedRecords::default();
            held.read(bytes);
            let mut buffer = vec![0; bytes.len()];
            assert_eq!((held.take(&mut buffer), held.is_empty()), (bytes.len(), true));
        }
        // Five bytes suffice to recognize a clear-text request.
        let (mut held, mut buffer) = (BufferedRecords::default(), [0; 8]);
        let ready = b"GET /".map(|byte| {
            held.read(&[byte]);
            held.take(&mut buffer)
        });
        assert_eq!((ready, &buffer[..5]), ([0, 0, 0, 0, 5], &b"GET /"[..]));
        let endless = [&[CLIENT_HELLO, 0xff, 0xff, 0xff][..], &[7; 20]].concat();
        assert_eq!(
            BufferedClientHello::default().read(&endless).map(Cow::into_owned),
            Some(endless)
        );
    }
}
