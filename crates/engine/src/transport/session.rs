//! TLS inside QUIC (RFC 9001): rustls as the cryptography of quinn-proto.
//!
//! quinn-proto has the same, but does not report whether a session was resumed, nor the outcome of
//! early data.

use std::any::Any;
use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::BytesMut;
use quinn_proto::crypto::{
    self, CryptoError, ExportKeyingMaterialError, KeyPair, Keys, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use rustls::pki_types::ServerName;
use rustls::quic::{self, KeyChange, Secrets, Version};
use rustls::{AlertDescription, ClientConfig, HandshakeKind};

use super::initial_keys::InitialKeys;
use super::padding::StripPadding;
use super::parked_session::{ParkedSession, Skipped, Stage};
use crate::contained::{PANIC_REASON, contained};
use crate::tls::{
    BufferedClientHello, ClientCertificate, EarlyDataOffer, Fetched, ListenerTls, Parking,
    ServerHandshake, TlsSummary, clear_request_note, is_signing_failure,
};

/// RFC 9000, section 15. The endpoint accepts no other version.
const VERSION_1: u32 = 1;

/// State of a connection's TLS, reported through quinn-proto's `handshake_data`.
pub(super) enum Handshake {
    Server {
        /// Outcome of the ClientHello, once decided.
        handshake: Option<ServerHandshake>,
        /// The server name that the client requested (SNI).
        server_name: Option<Arc<str>>,
        client: Option<Arc<ClientCertificate>>,
        address_validated: bool,
    },
    Client {
        summary: TlsSummary,
        /// The server's idle timeout; `None`: none.
        idle_timeout: Option<Duration>,
    },
}

/// TLS for connections from clients.
pub(super) struct ServerTls {
    tls: ListenerTls,
    initial: Arc<InitialKeys>,
}

/// TLS for connections that this side opens.
pub(super) struct ClientTls {
    config: Arc<ClientConfig>,
    initial: Arc<InitialKeys>,
}

impl ServerTls {
    pub(super) fn new(tls: ListenerTls) -> Result<Self, String> {
        let config = &tls.config;
        let initial = Arc::new(InitialKeys::new(config.crypto_provider())?);
        // Detects a configuration with which every connection would fail.
        quic::ServerConnection::new(config.clone(), Version::V1, Vec::new())
            .map_err(|error| error.to_string())?;
        Ok(Self { tls, initial })
    }

    /// Returns what handshakes may wait for; `None` if none has to.
    pub(super) fn parking(&self) -> Option<&Arc<Parking>> {
        self.tls.parking.as_ref()
    }

    /// Returns the keys to read the Initial packets of a connection ahead of the library.
    pub(super) fn peek_keys(&self, dst_cid: &ConnectionId) -> Keys {
        self.initial.peek(dst_cid)
    }

    /// Creates a session with encoded transport parameters.
    pub(super) fn session(&self, params: Vec<u8>) -> Session {
        clear_request_note();
        let config = self.tls.config.clone();
        let takes_early_data = config.max_early_data_size > 0;
        let tls = quic::ServerConnection::new(config, Version::V1, params);
        let tls =
            tls.expect("invariant: the configuration was checked when the endpoint was created");
        let side = SessionSide::Server {
            offer: EarlyDataOffer::default(),
            held: BufferedClientHello::default(),
            takes_early_data,
            server_name: None,
            client: None,
        };
        Session {
            tls: Tls::Live(Box::new(tls.into())),
            side,
            next_secrets: None,
            initial: self.initial.clone(),
            validated: Arc::default(),
            parked: None,
        }
    }
}

impl ClientTls {
    pub(super) fn new(config: Arc<ClientConfig>) -> Result<Self, String> {
        let initial = Arc::new(InitialKeys::new(config.crypto_provider())?);
        Ok(Self { config, initial })
    }
}

impl crypto::ServerConfig for ServerTls {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        if version == VERSION_1 {
            Ok(self.initial.derive(dst_cid, Side::Server))
        } else {
            Err(UnsupportedVersion)
        }
    }

    fn retry_tag(&self, _version: u32, orig_dst_cid: &ConnectionId, packet: &[u8]) -> [u8; 16] {
        retry_tag(orig_dst_cid, &[packet])
    }

    fn start_session(
        self: Arc<Self>,
        _version: u32,
        params: &TransportParameters,
    ) -> Box<dyn crypto::Session> {
        Box::new(self.session(encode(params)))
    }
}

impl crypto::ClientConfig for ClientTls {
    fn start_session(
        self: Arc<Self>,
        _version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        let invalid = |_| ConnectError::InvalidServerName(server_name.to_owned());
        let name = ServerName::try_from(server_name).map_err(invalid)?.to_owned();
        let tls =
            quic::ClientConnection::new(self.config.clone(), Version::V1, name, encode(params));
        let tls = tls
            .map_err(|error| ConnectError::InvalidServerName(format!("{server_name}: {error}")))?;
        let side = SessionSide::Client { early_data: tls.zero_rtt_keys().is_some() };
        let tls = Tls::Live(Box::new(tls.into()));
        Ok(Box::new(Session {
            tls,
            side,
            next_secrets: None,
            initial: self.initial.clone(),
            validated: Arc::default(),
            parked: None,
        }))
    }
}

pub(super) struct Session {
    tls: Tls,
    side: SessionSide,
    next_secrets: Option<Secrets>,
    initial: Arc<InitialKeys>,
    /// Whether a Handshake packet of the peer has arrived.
    validated: Arc<AtomicBool>,
    /// Present if the handshake was parked, until its ClientHello is answered.
    parked: Option<Box<ParkedSession>>,
}

/// A server no longer needs TLS once it has sent its own last message: the rest of it, some 5 KiB,
/// is freed then.
enum Tls {
    Live(Box<quic::Connection>),
    /// Another thread has the connection: see [`Stage::Away`].
    Away,
    Done(Option<ServerHandshake>),
}

enum SessionSide {
    Server {
        offer: EarlyDataOffer,
        held: BufferedClientHello,
        takes_early_data: bool,
        server_name: Option<Arc<str>>,
        client: Option<Arc<ClientCertificate>>,
    },
    Client {
        early_data: bool,
    },
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        self.initial.derive(dst_cid, side)
    }

    /// A server's outcome is available as soon as it is decided: the client may never complete the
    /// handshake.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        if self.parked.as_ref().is_some_and(|parked| parked.is_silent()) {
            return None;
        }
        let handshake = match (&self.side, &self.tls) {
            (SessionSide::Server { .. }, Tls::Live(_)) => self.server(self.server_handshake()),
            (_, Tls::Done(handshake)) => self.server(*handshake),
            (_, Tls::Away) => return None,
            (SessionSide::Client { early_data }, Tls::Live(tls)) => match &**tls {
                quic::Connection::Client(client) if !client.is_handshaking() => {
                    let summary = TlsSummary::new(
                        client,
                        early_data.then(|| client.is_early_data_accepted()),
                    );
                    Handshake::Client {
                        summary,
                        idle_timeout: tls.quic_transport_parameters().and_then(max_idle_timeout),
                    }
                }
                _ => return None,
            },
        };
        Some(Box::new(handshake))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn crypto::HeaderKey>, Box<dyn crypto::PacketKey>)> {
        let keys = self.live()?.zero_rtt_keys()?;
        // The client encrypts with these keys, the server decrypts.
        Some((Box::new(keys.header), Box::new(StripPadding(keys.packet))))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        match self.live()? {
            quic::Connection::Client(tls) => Some(tls.is_early_data_accepted()),
            quic::Connection::Server(_) => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.live().map_or(matches!(self.tls, Tls::Away), |tls| tls.is_handshaking())
    }

    fn read_handshake(&mut self, bytes: &[u8]) -> Result<bool, TransportError> {
        let Some(parked) = &mut self.parked else { return self.read(bytes).map(|()| false) };
        let Some(Skipped { rest, outcome }) = parked.skip(bytes)? else { return Ok(false) };
        outcome?;
        if matches!(self.tls, Tls::Live(_)) && !self.awaits_second_hello() {
            self.parked = None;
        }
        if !rest.is_empty() {
            self.read(rest)?;
        }
        // Nothing waits for this moment: the negotiated values are read once the connection is
        // established.
        Ok(false)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(tls) = self.live() else { return Ok(None) };
        let Some(encoded) = tls.quic_transport_parameters() else { return Ok(None) };
        let side =
            if matches!(tls, quic::Connection::Client(_)) { Side::Client } else { Side::Server };
        Ok(Some(TransportParameters::read(side, &mut io::Cursor::new(encoded))?))
    }

    fn write_handshake(&mut self, buffer: &mut Vec<u8>) -> Option<Keys> {
        self.take_answer();
        if self.parked.as_ref().is_some_and(|parked| parked.is_silent()) {
            return None;
        }
        let Tls::Live(tls) = &mut self.tls else { return None };
        match tls.write_hs(buffer) {
            Some(KeyChange::Handshake { keys }) => {
                let mut keys = boxed(keys);
                keys.packet.remote = Box::new(ValidatingKey {
                    key: keys.packet.remote,
                    validated: self.validated.clone(),
                });
                Some(keys)
            }
            Some(KeyChange::OneRtt { keys, next }) => {
                self.next_secrets = Some(next);
                Some(boxed(keys))
            }
            None => {
                // Everything was written, tickets included.
                if matches!(**tls, quic::Connection::Server(_)) && !tls.is_handshaking() {
                    self.tls = Tls::Done(self.server_handshake());
                }
                None
            }
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn crypto::PacketKey>>> {
        let secrets = self.next_secrets.as_mut()?;
        let local = NextKey { secrets: secrets.clone(), key: OnceLock::new() };
        let keys = secrets.next_packet_keys();
        Some(KeyPair { local: Box::new(local), remote: Box::new(StripPadding(keys.remote)) })
    }

    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some((token, tag)) = payload.split_last_chunk::<16>() else { return false };
        retry_tag(orig_dst_cid, &[header, token]) == *tag
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        let exported =
            self.live().map(|tls| tls.export_keying_material(output, label, Some(context)));
        exported.and_then(Result::ok).map(drop).ok_or(ExportKeyingMaterialError)
    }
}

impl Session {
    /// Answers the ClientHello of a connection that the transport has not accepted yet.
    pub(super) fn answer(
        mut self,
        hello: Vec<u8>,
        parking: Arc<Parking>,
        fetched: Fetched,
        is_slow: bool,
    ) -> Self {
        let (outcome, fetched) = fetched.provide(|| self.read(&hello));
        self.parked = Some(Box::new(ParkedSession::new(parking, fetched, is_slow, hello, outcome)));
        self
    }

    /// Lets the handshake fail when the transport passes the ClientHello on.
    pub(super) fn fail(&mut self, reason: &str) {
        match &mut self.parked {
            Some(parked) => parked.fail(internal(reason)),
            None => self.tls = Tls::Away,
        }
    }

    /// Reads handshake messages of the peer, as far as they are complete.
    fn read(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        let mut shown = Cow::Borrowed(bytes);
        if let SessionSide::Server { offer, held, .. } = &mut self.side {
            offer.read(bytes);
            match held.read(bytes) {
                Some(whole) => shown = whole,
                None => return Ok(()),
            }
        }
        let tls = match &mut self.tls {
            Tls::Live(tls) => tls,
            // Whatever follows the second ClientHello is too early.
            Tls::Away => return Err(unexpected("TLS message before the server's answer")),
            //= RFC 9001 section 6
            //# Endpoints MUST treat the receipt of a TLS KeyUpdate message as a connection error of type 0x010a,
            //# equivalent to a fatal TLS alert of unexpected_message; see Section 4.8.
            // A client may not send any other message after its Finished either: its certificate
            // was not requested.
            Tls::Done(_) => return Err(unexpected("unexpected TLS message after the handshake")),
        };
        match &mut self.parked {
            Some(parked) if parked.is_slow() => {
                let Tls::Live(tls) = std::mem::replace(&mut self.tls, Tls::Away) else {
                    unreachable!("matched above")
                };
                if !parked.answer_elsewhere(tls, shown.into_owned(), read_hs) {
                    return Err(internal("too many handshakes wait for a signature"));
                }
                Ok(())
            }
            Some(parked) => {
                let fetched = std::mem::take(&mut parked.fetched);
                let (read, _) = fetched.provide(|| contained(|| read_hs(tls, &shown)));
                self.parked = None;
                self.finish_read(read)
            }
            None => {
                let read = contained(|| read_hs(tls, &shown));
                self.finish_read(read)
            }
        }
    }

    /// Processes the outcome of a read; `None`: it has panicked.
    fn finish_read(
        &mut self,
        read: Option<Result<(), TransportError>>,
    ) -> Result<(), TransportError> {
        // TLS calls the application: certificate resolver, verifier, key log. After a panic, it is
        // not used again. The transport counts the panic.
        let Some(read) = read else {
            self.tls = Tls::Done(None);
            return Err(internal(PANIC_REASON));
        };
        read?;
        let Tls::Live(tls) = &self.tls else { return Ok(()) };
        if let SessionSide::Server { server_name, client, .. } = &mut self.side
            && let quic::Connection::Server(tls) = &**tls
        {
            if server_name.is_none() {
                *server_name = tls.server_name().map(Arc::from);
            }
            if client.is_none() {
                *client = tls.peer_certificates().and_then(ClientCertificate::new);
            }
        }
        Ok(())
    }

    /// Takes the connection back from another thread, if that has finished.
    fn take_answer(&mut self) {
        let Some(parked) = &self.parked else { return };
        let Stage::Away(answer) = &parked.stage else { return };
        let Some((tls, outcome)) = answer.take() else { return };
        self.parked = None;
        self.tls = Tls::Live(tls);
        if self.finish_read(Some(outcome)).is_err() {
            // The transport offers no way to report an error here, and the handshake times out.
            self.tls = Tls::Away;
        }
    }

    /// Whether a HelloRetryRequest was the answer to the ClientHello.
    fn awaits_second_hello(&self) -> bool {
        self.live().is_some_and(|tls| {
            tls.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest)
                && tls.negotiated_key_exchange_group().is_none()
        })
    }

    fn live(&self) -> Option<&quic::Connection> {
        match &self.tls {
            Tls::Live(tls) => Some(tls),
            Tls::Away | Tls::Done(_) => None,
        }
    }

    fn server(&self, handshake: Option<ServerHandshake>) -> Handshake {
        let (server_name, client) = match &self.side {
            SessionSide::Server { server_name, client, .. } => {
                (server_name.clone(), client.clone())
            }
            SessionSide::Client { .. } => (None, None),
        };
        Handshake::Server {
            handshake,
            server_name,
            client,
            address_validated: self.validated.load(Ordering::Relaxed),
        }
    }

    fn server_handshake(&self) -> Option<ServerHandshake> {
        let (SessionSide::Server { offer, takes_early_data, .. }, Some(tls)) =
            (&self.side, self.live())
        else {
            return None;
        };
        ServerHandshake::new(tls, offer.offered(), tls.zero_rtt_keys().is_some(), *takes_early_data)
    }
}

/// Passes complete handshake messages to TLS.
fn read_hs(tls: &mut quic::Connection, messages: &[u8]) -> Result<(), TransportError> {
    tls.read_hs(messages).map_err(|error| match tls.alert() {
        Some(description) => alert(description, error.to_string()),
        None if is_signing_failure(&error) => {
            alert(AlertDescription::InternalError, error.to_string())
        }
        None => TransportError {
            reason: error.to_string(),
            ..TransportErrorCode::PROTOCOL_VIOLATION.into()
        },
    })
}

fn unexpected(reason: &str) -> TransportError {
    alert(AlertDescription::UnexpectedMessage, reason.to_owned())
}

fn internal(reason: &str) -> TransportError {
    TransportError { reason: reason.to_owned(), ..TransportErrorCode::INTERNAL_ERROR.into() }
}

/// Maps an alert to a transport error code (RFC 9001, section 4.8).
fn alert(description: AlertDescription, reason: String) -> TransportError {
    TransportError { reason, ..TransportErrorCode::crypto(description.into()).into() }
}

/// Decrypts Handshake packets, and notes that one has arrived: its sender has received what the
/// server sent to its address.
struct ValidatingKey {
    key: Box<dyn crypto::PacketKey>,
    validated: Arc<AtomicBool>,
}

impl crypto::PacketKey for ValidatingKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)?;
        self.validated.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// The key to encrypt packets with after the next key update, which most connections never do: the
/// key, of 600 bytes, is created only then.
///
/// The key to decrypt with is created in advance, as RFC 9001, section 6.3 requires: the time it
/// takes must not reveal whether a packet is valid.
struct NextKey {
    secrets: Secrets,
    key: OnceLock<Box<dyn quic::PacketKey>>,
}

impl NextKey {
    fn key(&self) -> &impl crypto::PacketKey {
        self.key.get_or_init(|| self.secrets.clone().next_packet_keys().local)
    }
}

impl crypto::PacketKey for NextKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.key().encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.key().decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.key().tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key().confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key().integrity_limit()
    }
}

/// Reads the idle timeout from encoded transport parameters; `None` if there is none. quinn-proto
/// does not report it.
fn max_idle_timeout(mut parameters: &[u8]) -> Option<Duration> {
    //= RFC 9000 section 18.2
    //# max_idle_timeout (0x01):  The maximum idle timeout is a value in milliseconds that is encoded as an integer; see (Section 10.1).
    const MAX_IDLE_TIMEOUT: u64 = 0x01;
    loop {
        let id = take_varint(&mut parameters)?;
        let length = usize::try_from(take_varint(&mut parameters)?).ok()?;
        let (mut value, rest) = parameters.split_at_checked(length)?;
        if id == MAX_IDLE_TIMEOUT {
            return take_varint(&mut value)
                .filter(|milliseconds| *milliseconds > 0)
                .map(Duration::from_millis);
        }
        parameters = rest;
    }
}

/// Takes a variable-length integer (RFC 9000, section 16) off the front.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let (encoded, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    *bytes = rest;
    Some(
        encoded[1..]
            .iter()
            .fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte)),
    )
}

pub(super) fn encode(params: &TransportParameters) -> Vec<u8> {
    let mut encoded = Vec::new();
    params.write(&mut encoded);
    encoded
}

fn boxed(keys: quic::Keys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(keys.local.header),
            remote: Box::new(keys.remote.header),
        },
        packet: KeyPair {
            local: Box::new(keys.local.packet),
            remote: Box::new(StripPadding(keys.remote.packet)),
        },
    }
}

/// Computes the integrity tag of a Retry packet (RFC 9001, section 5.8). `packet` is all of it
/// before the tag, in pieces.
fn retry_tag(orig_dst_cid: &ConnectionId, packet: &[&[u8]]) -> [u8; 16] {
    const KEY: [u8; 16] = 0xbe0c_690b_9f66_575a_1d76_6b54_e368_c84e_u128.to_be_bytes();
    const NONCE: [u8; 12] =
        [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];
    let mut pseudo_packet = vec![orig_dst_cid.len() as u8];
    pseudo_packet.extend_from_slice(orig_dst_cid);
    for piece in packet {
        pseudo_packet.extend_from_slice(piece);
    }
    let key = UnboundKey::new(&AES_128_GCM, &KEY)
        .expect("invariant: the key has the length that the algorithm takes");
    let tag = LessSafeKey::new(key).seal_in_place_separate_tag(
        Nonce::assume_unique_for_key(NONCE),
        Aad::from(pseudo_packet),
        &mut [],
    );
    let tag = tag.expect("invariant: an empty plaintext is never too long");
    *tag.as_ref().first_chunk().expect("invariant: a tag has 16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|index| u8::from_str_radix(&hex[index..index + 2], 16).unwrap())
            .collect()
    }

    /// Passes one side's handshake messages to the other.
    fn hand(from: &mut dyn crypto::Session, to: &mut dyn crypto::Session) {
        loop {
            let mut written = Vec::new();
            let has_new_keys = from.write_handshake(&mut written).is_some();
            to.read_handshake(&written).unwrap();
            if !has_new_keys && written.is_empty() {
                break;
            }
        }
    }

    //= RFC 9001 section 6
    //# Endpoints MUST treat the receipt of a TLS KeyUpdate message as a connection error of type 0x010a,
    //# equivalent to a fatal TLS alert of unexpected_message; see Section 4.8.
    #[test]
    fn server_keeps_of_its_tls_only_what_it_needs_after_the_handshake() {
        let tls = crate::simulation::tls::Tls::new(&crate::Config::default());
        let parameters = TransportParameters::read(Side::Client, &mut &[][..]).unwrap();
        let server = Arc::new(ServerTls::new(tls.server).unwrap());
        let mut server = crypto::ServerConfig::start_session(server, VERSION_1, &parameters);
        let client = Arc::new(ClientTls::new(Arc::new(tls.client)).unwrap());
        let mut client =
            crypto::ClientConfig::start_session(client, VERSION_1, "localhost", &parameters)
                .unwrap();
        hand(&mut *client, &mut *server);
        hand(&mut *server, &mut *client);
        assert!(
            server.export_keying_material(&mut [0; 8], b"a label", b"").is_err(),
            "the handshake is not done"
        );
        hand(&mut *client, &mut *server);
        assert!(!server.is_handshaking());
        let has_session = |session: &dyn crypto::Session| {
            session.export_keying_material(&mut [0; 8], b"a label", b"").is_ok()
        };
        assert!(has_session(&*server), "its tickets are not sent yet");
        hand(&mut *server, &mut *client);
        assert!(!has_session(&*server) && has_session(&*client));
        assert!(
            matches!(*server.handshake_data().unwrap().downcast().unwrap(), Handshake::Server { handshake: Some(handshake), .. } if !handshake.resumed)
        );
        assert!(server.next_1rtt_keys().is_some());
        let key_update = [24, 0, 0, 1, 0];
        assert_eq!(u64::from(server.read_handshake(&key_update).unwrap_err().code), 0x10a);
    }

    /// RFC 9001, appendix A.4.
    #[test]
    fn retry_of_the_rfc_has_its_tag() {
        let packet =
            bytes("ff000000010008f067a5502a4262b5746f6b656e04a265ba2eff4d829058fb3f0f2496ba");
        let (packet, tag) = packet.split_last_chunk::<16>().unwrap();
        assert_eq!(retry_tag(&ConnectionId::new(&bytes("8394c8f03e515708")), &[packet]), *tag);
    }
}
