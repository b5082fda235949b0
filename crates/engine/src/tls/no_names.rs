//! Server names (SNI) that are no names of DNS: a host with its port, blanks, labels that are too long, letters outside of ASCII.
//!
//! Clients send them, and other servers take no notice. The library ends the handshake. So it is shown such an extension under a number that
//! means nothing to it, and hashes what the client has sent: the transcripts of both sides are the same. A client that insists on that
//! number has its own handshake fail, and nothing else. Only a client's certificate over TLS 1.2 cannot be verified on such a connection.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
use rustls::pki_types::ServerName;
use rustls::{SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

use super::client_hello::CLIENT_HELLO_BYTES;

/// The wire number of `server_name` (RFC 6066, section 3).
const SERVER_NAME: u16 = 0;
/// One for private use (RFC 8447, section 7), in its place.
const HIDDEN: u16 = 0xff6e;
const CLIENT_HELLO: u8 = 1;
/// Type and length of a handshake message (RFC 8446, section 4).
const MESSAGE_HEADER_BYTES: usize = 4;
/// Content type, version and length (RFC 8446, section 5.1).
const RECORD_HEADER_BYTES: usize = 5;
/// Content types of records.
const HANDSHAKE: u8 = 22;
const RECORDS: std::ops::RangeInclusive<u8> = 20..=23;

/// Gives the extension another number if it names no host, in a whole ClientHello.
fn hide(message: &mut [u8]) {
    if let Some((at, list)) = extension(message, SERVER_NAME)
        && is_no_name(list)
        && extension(message, HIDDEN).is_none()
    {
        message[at..at + 2].copy_from_slice(&HIDDEN.to_be_bytes());
    }
}

/// What the client has sent in place of handshake messages as the library has seen them. The last one may be cut short, as for a binder
/// (RFC 8446, section 4.2.11.2).
fn restored(messages: &[u8]) -> Cow<'_, [u8]> {
    let mut restored = Cow::Borrowed(messages);
    let mut begin = 0;
    while let Some(&[kind, a, b, c]) = messages.get(begin..begin + MESSAGE_HEADER_BYTES) {
        let end = begin + MESSAGE_HEADER_BYTES + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
        let message = &messages[begin..end.min(messages.len())];
        if kind == CLIENT_HELLO
            && let Some((at, list)) = extension(message, HIDDEN)
            && is_no_name(list)
        {
            restored.to_mut()[begin + at..begin + at + 2].copy_from_slice(&SERVER_NAME.to_be_bytes());
        }
        begin = end;
    }
    restored
}

/// Where an extension of a ClientHello begins, and its content.
fn extension(message: &[u8], wanted: u16) -> Option<(usize, &[u8])> {
    // Version and random, then session ID, cipher suites and compression methods (RFC 8446, section 4.1.2).
    let mut at = MESSAGE_HEADER_BYTES + 34;
    for width in [1, 2, 1] {
        at += width + length(message.get(at..at + width)?);
    }
    at += 2;
    loop {
        let kind = u16::from_be_bytes(*message.get(at..)?.first_chunk()?);
        let begin = at + 4;
        let end = begin + length(message.get(at + 2..begin)?);
        let content = message.get(begin..end)?;
        if kind == wanted {
            return Some((at, content));
        }
        at = end;
    }
}

fn length(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

/// Whether a list of names has one host (RFC 6066, section 3), which is none. Lists of another form are malformed, as the library says.
fn is_no_name(list: &[u8]) -> bool {
    let [a, b, 0, c, d, name @ ..] = list else { return false };
    length(&[*a, *b]) == name.len() + 3 && length(&[*c, *d]) == name.len() && ServerName::try_from(name).is_err()
}

/// Handshake messages of a client over QUIC, of which a ClientHello is held until it is whole.
#[derive(Debug, Default)]
pub(crate) struct HeldMessage(Vec<u8>);

impl HeldMessage {
    /// Takes the next bytes. Returns what is to be read now, if anything.
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
            hide(message);
        }
        Some(Cow::Owned(held))
    }
}

/// Records of a client over TCP, of which one with a ClientHello is held until it is whole. One that is cut into records is not looked into.
#[derive(Debug, Default)]
pub(crate) struct HeldRecords {
    bytes: Vec<u8>,
    /// So many of them may be read.
    ready: usize,
    /// So many that follow these are of a record that is passed on as it comes.
    passing: usize,
}

impl HeldRecords {
    /// Takes the next bytes; [`HeldRecords::take`] has what may be read of them.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        loop {
            let passed = self.passing.min(self.bytes.len() - self.ready);
            self.passing -= passed;
            self.ready += passed;
            // So many bytes tell a request in clear text too: the library would end the connection at the first that is of no record.
            let Some(header) = self.bytes.get(self.ready..self.ready + RECORD_HEADER_BYTES) else { return };
            let (kind, size) = (header[0], length(&header[3..]));
            let begin = self.ready + RECORD_HEADER_BYTES;
            match self.bytes.get(begin) {
                _ if !RECORDS.contains(&kind) => return self.give_up(),
                Some(&CLIENT_HELLO) if kind == HANDSHAKE && size <= CLIENT_HELLO_BYTES => {
                    let Some(content) = self.bytes.get_mut(begin..begin + size) else { return };
                    hide(content);
                    self.ready = begin + size;
                }
                None if kind == HANDSHAKE && size > 0 => return,
                _ => self.passing = RECORD_HEADER_BYTES + size,
            }
        }
    }

    /// What is there is passed on, and all that follows: it is no TLS, or its end has come.
    pub(crate) fn give_up(&mut self) {
        (self.ready, self.passing) = (self.bytes.len(), usize::MAX);
    }

    /// Whether there is anything that was not taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Moves what may be read into `buffer`, as far as there is room. Returns how many bytes that is.
    pub(crate) fn take(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.ready.min(buffer.len());
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        self.ready -= count;
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
        count
    }
}

/// A hash that restores what was hidden.
struct Restoring(&'static dyn Hash);

struct RestoringContext(Box<dyn Context>);

impl Hash for Restoring {
    fn start(&self) -> Box<dyn Context> {
        Box::new(RestoringContext(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(&restored(data))
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
        self.0.update(&restored(data));
    }
}

/// The cryptography of servers: that of [`super::provider`], with hashes that restore what was hidden. One for the whole process, since the
/// library wants its parts to last for ever.
pub(crate) fn server_provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    let make = || {
        let mut provider = CryptoProvider::clone(&super::provider());
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
        hash_provider: Box::leak(Box::new(Restoring(common.hash_provider))),
        confidentiality_limit: common.confidentiality_limit,
    };
    match suite {
        SupportedCipherSuite::Tls12(suite) => SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
            common: common(&suite.common),
            prf_provider: suite.prf_provider,
            kx: suite.kx,
            sign: suite.sign,
            aead_alg: suite.aead_alg,
        }))),
        SupportedCipherSuite::Tls13(suite) => SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
            common: common(&suite.common),
            hkdf_provider: suite.hkdf_provider,
            aead_alg: suite.aead_alg,
            quic: suite.quic,
        }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let list: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &(content.len() as u16).to_be_bytes(), content].concat())
            .collect();
        let body = [&[3, 3][..], &[9; 32], &[1, 7], &[0, 2, 0x13, 1], &[1, 0], &(list.len() as u16).to_be_bytes(), &list].concat();
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
    fn name_that_is_none_is_hidden_and_restored() {
        for name in NO_NAMES.into_iter().chain([&*"a".repeat(70)]) {
            let sent = with_name(name);
            let mut seen = sent.clone();
            hide(&mut seen);
            assert!(extension(&seen, SERVER_NAME).is_none() && extension(&seen, HIDDEN).is_some(), "{name}");
            assert_eq!(*restored(&seen), sent, "{name}");
            // Cut short as for a binder, and behind another message.
            assert_eq!(*restored(&seen[..seen.len() - 40]), sent[..sent.len() - 40], "{name}");
            let behind = |message: &[u8]| [&[254, 0, 0, 2, 1, 1][..], message].concat();
            assert_eq!(*restored(&behind(&seen)), behind(&sent), "{name}");
        }
    }

    #[test]
    fn other_messages_stay_as_they_are() {
        let mut messages: Vec<_> = ["localhost", "a.example.", "127.0.0.1", "A_b.example"].map(with_name).into();
        // Two names, a name of another kind, and no name at all.
        messages.push(client_hello(&[(SERVER_NAME, [named("a b"), named("c")].concat())]));
        messages.push(client_hello(&[(SERVER_NAME, vec![0, 4, 7, 0, 1, b'x'])]));
        messages.push(client_hello(&[(51, vec![5; 100])]));
        // The number is in use.
        messages.push(client_hello(&[(SERVER_NAME, named("a b")), (HIDDEN, vec![])]));
        for sent in messages {
            let mut seen = sent.clone();
            hide(&mut seen);
            assert_eq!(seen, sent);
            assert_eq!(*restored(&sent), sent);
        }
    }

    #[test]
    fn broken_messages_are_passed_on() {
        let whole = with_name("a b");
        for end in 0..whole.len() {
            let mut cut = whole[..end].to_vec();
            hide(&mut cut);
            let _ = restored(&cut);
            let mut wild = whole.clone();
            wild[end] = 255;
            hide(&mut wild);
            let _ = restored(&wild);
        }
    }

    #[test]
    fn messages_and_records_come_whole_in_pieces_of_any_size() {
        let sent = with_name("a b");
        let mut seen = sent.clone();
        hide(&mut seen);
        let record = |kind: u8, content: &[u8]| [&[kind, 3, 1][..], &(content.len() as u16).to_be_bytes(), content].concat();
        let others = [record(20, &[1]), record(23, &[7; 3000]), record(HANDSHAKE, &[20, 0, 0, 1, 9])].concat();
        let wire = [record(HANDSHAKE, &sent), others.clone(), record(HANDSHAKE, &sent)].concat();
        let wanted = [record(HANDSHAKE, &seen), others, record(HANDSHAKE, &seen)].concat();
        for piece in [1, 2, 5, 7, 1000, 10_000] {
            let (mut held, mut read, mut buffer) = (HeldRecords::default(), Vec::new(), [0; 600]);
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

            let (mut held, mut read) = (HeldMessage::default(), Vec::new());
            sent.chunks(piece).for_each(|bytes| read.extend(held.read(bytes).unwrap_or_default().into_owned()));
            assert_eq!(held.read(&[20, 0, 0, 0]).as_deref(), Some(&[20, 0, 0, 0][..]));
            assert_eq!(read, seen, "{piece}");
        }
    }

    #[test]
    fn what_is_no_client_hello_is_not_held() {
        let endless = [&[HANDSHAKE, 3, 1, 0xff, 0xff, 1][..], &vec![7; 20_000]].concat();
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], &endless, &[21, 3, 1, 0, 2, 2, 40]] {
            let mut held = HeldRecords::default();
            held.read(bytes);
            let mut buffer = vec![0; bytes.len()];
            assert_eq!((held.take(&mut buffer), held.is_empty()), (bytes.len(), true));
        }
        // A request in clear text is told by five bytes.
        let (mut held, mut buffer) = (HeldRecords::default(), [0; 8]);
        let ready = b"GET /".map(|byte| {
            held.read(&[byte]);
            held.take(&mut buffer)
        });
        assert_eq!((ready, &buffer[..5]), ([0, 0, 0, 0, 5], &b"GET /"[..]));
        let endless = [&[CLIENT_HELLO, 0xff, 0xff, 0xff][..], &[7; 20]].concat();
        assert_eq!(HeldMessage::default().read(&endless).map(Cow::into_owned), Some(endless));
    }
}
