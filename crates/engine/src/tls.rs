//! TLS of both transports: one identity and one policy.

mod client_certificates;
mod client_hello;
mod client_sessions;
mod compression;
mod hello_summary;
mod invalid_server_names;
mod parking;
mod provider;
mod sessions;
mod shared_scope;
mod shared_sessions;
mod signing_threads;

use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, ResolvesServerCert};
use rustls::{CipherSuite, HandshakeKind, KeyLog, NamedGroup, ProtocolVersion};

pub(crate) use client_certificates::clear_request_note;
pub use client_certificates::{ClientCertificate, ClientCertificatePolicy};
pub(crate) use client_hello::{EarlyDataOffer, RecordedOffer};
pub(crate) use client_sessions::ClientSessions;
pub(crate) use hello_summary::HelloSummary;
use invalid_server_names::server_provider;
pub(crate) use invalid_server_names::{BufferedClientHello, BufferedRecords};
use parking::Signing;
pub(crate) use parking::{ListenerTls, Parking};
pub use provider::provider;
use sessions::Scope;
pub use sessions::Sessions;
pub(crate) use shared_scope::Fetched;
use shared_scope::SharedScope;
pub use shared_sessions::{OnSessions, SessionName, SharedSession, SharedSessions};
use signing_threads::SigningThreads;
pub(crate) use signing_threads::is_signing_failure;
pub use signing_threads::{SigningFailed, SlowKeys};

use crate::limits::Limits;
use crate::stats::{Counter, Stats};

/// Bytes of early data that a TCP connection may send. They are buffered until the protocol above
/// reads them, which it does at once, so at most this much waits. Not configurable: a client sends
/// as much as its ticket allows even after the server was restarted with a lower limit, and the
/// server would have to close the connection.
const TCP_EARLY_DATA_BYTES: u32 = 16 << 10;
/// RFC 9001, section 4.6.1: the only value that QUIC allows; the transport's own limits apply
/// instead.
const QUIC_EARLY_DATA_BYTES: u32 = u32::MAX;

/// A certificate chain with its key, ready for TCP and QUIC, and the sessions that may be resumed
/// with it.
#[derive(Clone, Debug)]
pub struct Identity {
    tcp: Arc<rustls::ServerConfig>,
    quic: Arc<rustls::ServerConfig>,
    certificate: Vec<u8>,
    /// Created by the first listener, unless it was given.
    sessions: Arc<OnceLock<Arc<Sessions>>>,
    shared: Option<SharedIdentity>,
    slow_keys: Option<Arc<dyn SlowKeys>>,
    /// Created by the first listener.
    signing_threads: Arc<OnceLock<SigningThreads>>,
}

/// Sessions that an identity shares with other machines.
#[derive(Clone, Debug)]
struct SharedIdentity {
    store: Arc<dyn SharedSessions>,
    /// Takes the place of the certificate: it is equal on all machines.
    binding: [u8; 32],
}

impl Identity {
    /// Creates an identity from a chain, the server's own certificate first, and its key.
    ///
    /// Fails when the type of the key is not supported or the key does not belong to the
    /// certificate.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let certificate = chain.first().map(|first| first.to_vec()).unwrap_or_default();
        let tcp = rustls::ServerConfig::builder_with_provider(server_provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key.clone_key())?;
        // RFC 9001, section 4.2: clients MUST NOT offer TLS versions older than 1.3.
        let quic = rustls::ServerConfig::builder_with_provider(server_provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(Self::configured(tcp, quic, certificate))
    }

    /// Creates an identity whose chain and key `resolver` chooses for each handshake, by server
    /// name. The resolver may return other certificates at any time.
    ///
    /// A session of this identity may be resumed with any of its certificates, by a client that
    /// asks for the same server name.
    ///
    /// # Errors
    ///
    /// Never with the built-in cryptography.
    pub fn with_resolver(resolver: Arc<dyn ResolvesServerCert>) -> Result<Self, rustls::Error> {
        Self::with_policy(resolver, &Policy::default())
    }

    /// Creates an identity as [`Identity::with_resolver`] does, with a TLS policy.
    ///
    /// # Errors
    ///
    /// Never with the built-in cryptography.
    pub fn with_policy(
        resolver: Arc<dyn ResolvesServerCert>,
        policy: &Policy,
    ) -> Result<Self, rustls::Error> {
        let versions: &[_] = if policy.only_tls13 {
            &[&rustls::version::TLS13]
        } else {
            &[&rustls::version::TLS13, &rustls::version::TLS12]
        };
        let (resolver, verifier): (Arc<dyn ResolvesServerCert>, Arc<dyn ClientCertVerifier>) =
            match &policy.client_certificates {
                Some(asks) => {
                    let resolver =
                        client_certificates::Resolver { inner: resolver, asks: asks.clone() };
                    (Arc::new(resolver), Arc::new(client_certificates::Verifier::new(asks.clone())))
                }
                None => (resolver, Arc::new(NoClientAuth)),
            };
        let tcp = rustls::ServerConfig::builder_with_provider(server_provider())
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(verifier.clone())
            .with_cert_resolver(resolver.clone());
        let quic = rustls::ServerConfig::builder_with_provider(server_provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(resolver);
        // Random bytes take the place of the one certificate: no other identity has them.
        let mut identity = Self::configured(tcp, quic, rand::random::<[u8; 32]>().to_vec());
        if policy.acme_challenges {
            Arc::make_mut(&mut identity.tcp).alpn_protocols.push(ACME_TLS.to_vec());
        }
        Ok(identity)
    }

    fn configured(
        mut tcp: rustls::ServerConfig,
        mut quic: rustls::ServerConfig,
        certificate: Vec<u8>,
    ) -> Self {
        configure(&mut tcp, &mut quic);
        Self {
            tcp: Arc::new(tcp),
            quic: Arc::new(quic),
            certificate,
            sessions: Arc::default(),
            shared: None,
            slow_keys: None,
            signing_threads: Arc::default(),
        }
    }

    /// Uses this session store. Identities may share a store; none resumes the sessions of another.
    ///
    /// By default, the first worker that listens with this identity or a clone of it creates a
    /// store according to its limits, for all of them.
    #[must_use]
    pub fn with_sessions(mut self, sessions: Arc<Sessions>) -> Self {
        self.sessions = Arc::new(OnceLock::from(sessions));
        self
    }

    /// Shares sessions with other machines: they are kept in `store`, and in no other.
    ///
    /// `binding` is a hash of all settings that decide whether a session may be resumed, except the
    /// limits of QUIC, which count by themselves: certificates, the policy for client certificates.
    /// Machines resume each other's sessions if it is equal. A handshake that offers a session is
    /// parked until the store has answered.
    #[must_use]
    pub fn with_shared_sessions(
        mut self,
        store: Arc<dyn SharedSessions>,
        binding: [u8; 32],
    ) -> Self {
        self.shared = Some(SharedIdentity { store, binding });
        self
    }

    /// Runs handshakes whose key is slow on other threads, at most
    /// [`Limits::signing_threads`] at once.
    #[must_use]
    pub fn with_slow_keys(mut self, keys: Arc<dyn SlowKeys>) -> Self {
        self.slow_keys = Some(keys);
        self
    }

    /// Logs the secrets of all connections. Any reader of this log can decrypt their traffic.
    #[must_use]
    pub fn with_key_log(mut self, key_log: &Arc<dyn KeyLog>) -> Self {
        Arc::make_mut(&mut self.tcp).key_log = key_log.clone();
        Arc::make_mut(&mut self.quic).key_log = key_log.clone();
        self
    }

    /// Returns the session store; `None` until there is one, see [`Identity::with_sessions`].
    pub fn sessions(&self) -> Option<&Arc<Sessions>> {
        self.sessions.get()
    }

    /// Checks that connections can be created with this identity.
    pub(crate) fn check(&self) -> Result<(), rustls::Error> {
        rustls::quic::ServerConnection::new(
            self.quic.clone(),
            rustls::quic::Version::V1,
            Vec::new(),
        )
        .map(drop)
    }

    pub(crate) fn tcp(&self, options: &TlsOptions<'_>, stats: &Arc<Stats>) -> ListenerTls {
        let mut tls = rustls::ServerConfig::clone(&self.tcp);
        tls.max_early_data_size = if options.early_data { TCP_EARLY_DATA_BYTES } else { 0 };
        self.listener(tls, "tcp", options, stats)
    }

    pub(crate) fn quic(&self, options: &TlsOptions<'_>, stats: &Arc<Stats>) -> ListenerTls {
        let mut tls = rustls::ServerConfig::clone(&self.quic);
        //= RFC 9000 section 7.4.1
        //# If 0-RTT data is accepted by the server, the server MUST NOT reduce any limits or alter any values that might be violated by
        //# the client with its 0-RTT data.
        //= RFC 9114 section 7.2.4.2
        //# If the server cannot determine that the settings remembered by a client are compatible with its current settings, it MUST
        //# NOT accept 0-RTT data.
        //= RFC 9114 section 7.2.4.2
        //# If 0-RTT data is accepted by the server, its SETTINGS frame MUST NOT reduce any limits or alter any values that might be
        //# violated by the client with its 0-RTT data.
        // A listener with other limits does not resume the session.
        let limits = format!("quic {:?} {}", options.limits, options.datagrams);
        tls.max_early_data_size = if options.early_data { QUIC_EARLY_DATA_BYTES } else { 0 };
        self.listener(tls, &limits, options, stats)
    }

    /// Completes the TLS of one transport with its sessions.
    fn listener(
        &self,
        mut tls: rustls::ServerConfig,
        transport: &str,
        options: &TlsOptions<'_>,
        stats: &Arc<Stats>,
    ) -> ListenerTls {
        let limits = options.limits;
        let shared = self.shared.as_ref().map(|shared| {
            let scope = scope(&shared.binding, transport);
            let store = shared.store.clone();
            Arc::new(SharedScope::new(store, scope, limits.session_lifetime(), stats))
        });
        tls.session_storage = match &shared {
            Some(shared) => shared.clone(),
            None => self.store(limits).view(scope(&self.certificate, transport), stats),
        };
        let signing = self.slow_keys.as_ref().map(|keys| Signing {
            keys: keys.clone(),
            threads: self
                .signing_threads
                .get_or_init(|| {
                    let count = |value| usize::try_from(value).unwrap_or(usize::MAX);
                    SigningThreads::new(
                        count(limits.signing_threads()),
                        count(limits.parked_handshakes()),
                    )
                })
                .clone(),
        });
        let parking = (shared.is_some() || signing.is_some())
            .then(|| Arc::new(Parking { sessions: shared, signing }));
        ListenerTls { config: Arc::new(tls), parking }
    }

    fn store(&self, limits: &Limits) -> &Arc<Sessions> {
        self.sessions.get_or_init(|| Sessions::new(limits))
    }
}

/// Returns the scope of a session: it is resumed only with the certificate, or what takes its place,
/// and the transport that it was made with. TLS itself checks that the server name is the same, and
/// for early data the protocol.
fn scope(certificate: &[u8], transport: &str) -> Scope {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(&(certificate.len() as u64).to_be_bytes());
    hash.update(certificate);
    hash.update(transport.as_bytes());
    let hash = hash.finish();
    *hash.as_ref().first_chunk().expect("invariant: SHA-256 has 32 bytes")
}

/// What a worker's configuration decides about TLS.
pub(crate) struct TlsOptions<'a> {
    pub(crate) limits: &'a Limits,
    /// Whether early data is accepted.
    pub(crate) early_data: bool,
    /// Whether QUIC datagrams are offered.
    pub(crate) datagrams: bool,
}

/// TLS policy of an identity.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Requires TLS 1.3 over TCP too. Otherwise TLS 1.2 is used with clients that support nothing
    /// newer.
    pub only_tls13: bool,
    /// Decides which clients are asked for a certificate; `None`: no client. The certificate is in
    /// [`Peer::client_certificate`](crate::Peer::client_certificate).
    pub client_certificates: Option<Arc<dyn ClientCertificatePolicy>>,
    /// Accepts handshakes over TCP from clients that offer only [`ACME_TLS`]. The resolver must
    /// then return the certificate of a challenge, or none; the connection ends after the
    /// handshake.
    pub acme_challenges: bool,
}

/// ALPN protocol with which a certificate authority validates control of a name (RFC 8737). The
/// authority offers no other protocol.
pub const ACME_TLS: &[u8] = b"acme-tls/1";

fn configure(tcp: &mut rustls::ServerConfig, quic: &mut rustls::ServerConfig) {
    tcp.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // The response to early data is sent before the client's next flight arrives; otherwise early
    // data would save no time.
    tcp.send_half_rtt_data = true;
    quic.alpn_protocols = vec![b"h3".to_vec()];
    compression::compress(tcp, quic);
    // A process's first random number takes some 40 ms. They are spent here, not in the first
    // handshake, during which all connections of the worker would wait. An error here occurs again
    // there, and is reported there.
    let _ = quic.crypto_provider().secure_random.fill(&mut [0]);
}

/// TLS version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// TLS version and cipher suite of a connection. Small, since each request has a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsParameters {
    /// The version.
    pub version: TlsVersion,
    suite: u16,
}

impl TlsParameters {
    /// Returns the cipher suite.
    pub fn cipher_suite(&self) -> CipherSuite {
        self.suite.into()
    }

    /// Returns `None` before the server has answered a ClientHello.
    pub(crate) fn new(tls: &rustls::CommonState) -> Option<Self> {
        Negotiated::new(tls).parameters()
    }
}

/// The outcome of a server's answer to a ClientHello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerHandshake {
    pub(crate) resumed: bool,
    early_data_offered: bool,
    early_data_accepted: bool,
    /// Whether the server accepts early data at all.
    takes_early_data: bool,
    /// Fields are `None` if they are decided later, like the group in TLS 1.2.
    pub(crate) agreed: Negotiated,
}

/// Parameters that client and server have agreed on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Negotiated {
    version: Option<ProtocolVersion>,
    cipher_suite: Option<CipherSuite>,
    key_exchange: Option<NamedGroup>,
}

impl Negotiated {
    pub(crate) fn new(tls: &rustls::CommonState) -> Self {
        Self {
            version: tls.protocol_version(),
            cipher_suite: tls.negotiated_cipher_suite().map(|suite| suite.suite()),
            key_exchange: tls
                .negotiated_key_exchange_group()
                .map(rustls::crypto::SupportedKxGroup::name),
        }
    }

    pub(crate) fn parameters(self) -> Option<TlsParameters> {
        let version = match self.version? {
            ProtocolVersion::TLSv1_2 => TlsVersion::Tls12,
            // No other version is enabled.
            _ => TlsVersion::Tls13,
        };
        Some(TlsParameters { version, suite: self.cipher_suite?.into() })
    }

    /// Counts a completed handshake.
    pub(crate) fn count(self, stats: &Stats) {
        match self.version {
            Some(ProtocolVersion::TLSv1_2) => stats.tls_1_2.add(1),
            _ => stats.tls_1_3.add(1),
        }
        match self.cipher_suite {
            Some(
                CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ) => stats.tls_aes_128_gcm.add(1),
            Some(
                CipherSuite::TLS13_AES_256_GCM_SHA384
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            ) => stats.tls_aes_256_gcm.add(1),
            // The provider has no other cipher suites.
            _ => stats.tls_chacha20_poly1305.add(1),
        }
        match self.key_exchange {
            Some(NamedGroup::X25519MLKEM768) => stats.tls_x25519mlkem768.add(1),
            Some(NamedGroup::X25519) => stats.tls_x25519.add(1),
            Some(NamedGroup::secp256r1) => stats.tls_secp256r1.add(1),
            Some(NamedGroup::secp384r1) => stats.tls_secp384r1.add(1),
            _ => stats.tls_other_group.add(1),
        }
    }
}

impl ServerHandshake {
    /// Returns `None` until the server has answered a ClientHello with something other than a
    /// HelloRetryRequest.
    pub(crate) fn new(
        tls: &rustls::CommonState,
        offered: bool,
        accepted: bool,
        takes_early_data: bool,
    ) -> Option<Self> {
        let resumed = match tls.handshake_kind() {
            Some(HandshakeKind::Resumed) => true,
            Some(HandshakeKind::Full) => false,
            // The kind is known with the HelloRetryRequest already. Only the key exchange shows
            // that the second ClientHello was answered.
            Some(HandshakeKind::FullWithHelloRetryRequest)
                if tls.negotiated_key_exchange_group().is_some() =>
            {
                false
            }
            Some(HandshakeKind::FullWithHelloRetryRequest) | None => return None,
        };
        let agreed = Negotiated::new(tls);
        Some(Self {
            resumed,
            early_data_offered: offered,
            early_data_accepted: accepted,
            takes_early_data,
            agreed,
        })
    }

    pub(crate) fn count(self, resumed: &Counter, stats: &Stats) {
        if self.resumed {
            resumed.add(1);
        }
        let counter = match self {
            Self { early_data_accepted: true, .. } => &stats.early_data_accepted,
            Self { early_data_offered: false, .. } => return,
            Self { takes_early_data: false, .. } => &stats.early_data_refused_off,
            // A replayed first flight is counted here.
            Self { resumed: false, .. } => &stats.early_data_refused_no_session,
            Self { .. } => &stats.early_data_refused_stale,
        };
        counter.add(1);
    }
}

/// Summary of a connection's TLS handshake.
#[derive(Clone, Copy, Debug)]
pub struct TlsSummary {
    /// An earlier session was resumed, so no certificate was sent.
    pub resumed: bool,
    /// Whether the server accepted early data; `None` if none was sent.
    pub early_data_accepted: Option<bool>,
    /// The cipher suite.
    pub cipher_suite: Option<CipherSuite>,
    /// The key exchange group.
    pub key_exchange: Option<NamedGroup>,
}

impl TlsSummary {
    pub(crate) fn new(tls: &rustls::CommonState, early_data_accepted: Option<bool>) -> Self {
        Self {
            resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
            early_data_accepted,
            cipher_suite: tls.negotiated_cipher_suite().map(|suite| suite.suite()),
            key_exchange: tls
                .negotiated_key_exchange_group()
                .map(rustls::crypto::SupportedKxGroup::name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Config, Limits};

    fn identity(sessions: &Arc<Sessions>) -> Identity {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        Identity::new(vec![CertificateDer::from(made.cert)], key)
            .unwrap()
            .with_sessions(sessions.clone())
    }

    //= RFC 9114 section 7.2.4.2
    //# If the server cannot determine that the settings remembered by a client are compatible with its current settings, it MUST NOT
    //# accept 0-RTT data.
    //= RFC 9114 section 7.2.4.2
    //# If 0-RTT data is accepted by the server, its SETTINGS frame MUST NOT reduce any limits or alter any values that might be violated
    //# by the client with its 0-RTT data.
    #[test]
    fn ticket_works_only_for_the_certificate_transport_and_limits_it_came_with() {
        let (sessions, stats) = (Sessions::new(&Limits::default()), Arc::default());
        let (here, there) = (identity(&sessions), identity(&sessions));
        let config = Config::default();
        let limits = |limits| Config { limits, ..Config::default() };
        let other_limits =
            limits(Limits::default().with_idle_timeout(Duration::from_secs(1)).unwrap());
        let other_settings = limits(Limits::default().with_field_section_bytes(2_000).unwrap());
        let other_table = limits(Limits::default().with_qpack_table_bytes(2_000).unwrap());
        let other_blocked_streams =
            limits(Limits::default().with_qpack_blocked_streams(15).unwrap());
        let store = |tls: ListenerTls| tls.config.session_storage.clone();
        assert!(store(here.quic(&config.tls_options(), &stats)).put(vec![1; 32], vec![7; 100]));
        for elsewhere in [
            here.tcp(&config.tls_options(), &stats),
            here.quic(&other_limits.tls_options(), &stats),
            here.quic(&other_settings.tls_options(), &stats),
            here.quic(&other_table.tls_options(), &stats),
            here.quic(&other_blocked_streams.tls_options(), &stats),
            there.quic(&config.tls_options(), &stats),
            there.tcp(&config.tls_options(), &stats),
        ] {
            assert_eq!(store(elsewhere).take(&[1; 32]), None);
        }
        // As another worker would see it.
        assert_eq!(
            store(here.clone().quic(&config.tls_options(), &stats)).take(&[1; 32]),
            Some(vec![7; 100])
        );
    }

    /// A group that no server here supports: a client that prefers it is asked for another key
    /// share.
    #[derive(Debug)]
    struct UnknownGroup;

    impl rustls::crypto::SupportedKxGroup for UnknownGroup {
        fn start(&self) -> Result<Box<dyn rustls::crypto::ActiveKeyExchange>, rustls::Error> {
            Ok(Box::new(Self))
        }

        fn name(&self) -> NamedGroup {
            NamedGroup::X448
        }
    }

    impl rustls::crypto::ActiveKeyExchange for UnknownGroup {
        fn complete(
            self: Box<Self>,
            _peer: &[u8],
        ) -> Result<rustls::crypto::SharedSecret, rustls::Error> {
            Err(rustls::Error::General("no server has this group".to_owned()))
        }

        fn pub_key(&self) -> &[u8] {
            &[0; 56]
        }

        fn group(&self) -> NamedGroup {
            NamedGroup::X448
        }
    }

    /// SETTINGS are sent with the first keys that allow it (RFC 9114 section 7.2.4), which the
    /// server has before the client's Finished.
    #[test]
    fn handshake_with_a_hello_retry_request_is_decided_by_the_second_client_hello() {
        use rustls::crypto::CryptoProvider;
        use rustls::pki_types::ServerName;
        use rustls::quic::{ClientConnection, ServerConnection, Version};

        let (sessions, stats) = (Sessions::new(&Limits::default()), Arc::default());
        let server = identity(&sessions).quic(&Config::default().tls_options(), &stats);
        let mut server = ServerConnection::new(server.config, Version::V1, Vec::new()).unwrap();
        let mut provider = CryptoProvider::clone(&super::provider());
        provider.kx_groups.insert(0, &UnknownGroup);
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
        let client = client.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
        let mut client =
            client.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        client.alpn_protocols = vec![b"h3".to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let mut client =
            ClientConnection::new(Arc::new(client), Version::V1, name, Vec::new()).unwrap();
        let decided = |server: &ServerConnection| ServerHandshake::new(server, false, false, false);

        let mut hello = Vec::new();
        client.write_hs(&mut hello);
        server.read_hs(&hello).unwrap();
        assert!(decided(&server).is_none());
        let mut retry = Vec::new();
        assert!(server.write_hs(&mut retry).is_none());
        assert_eq!(server.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
        assert!(decided(&server).is_none());

        client.read_hs(&retry).unwrap();
        let mut second = Vec::new();
        client.write_hs(&mut second);
        server.read_hs(&second).unwrap();
        assert!(server.is_handshaking());
        let handshake = decided(&server).unwrap();
        assert!(!handshake.resumed);
        assert!(handshake.agreed.key_exchange.is_some());
    }
}
