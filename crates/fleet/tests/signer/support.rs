//! Certificates, a server, a client, and signers that misbehave.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pronghorn_fleet::signer::protocol::{Decoder, MAX_MESSAGE_BYTES, Opcode, Operation};
use pronghorn_fleet::signer::server::{Client, Identity, Key, Settings};
use pronghorn_fleet::signer::{
    Hash, KeySource, LocalKey, Phase, PublicKey, Scheme, Server, SignError, SignerClient,
    SignerConfig, client_tls, server_tls,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

/// Ends a hang; many times as long as anything takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const PSS: Scheme = Scheme::RsaPss(Hash::Sha256);
pub(crate) const P256: Scheme = Scheme::Ecdsa(Hash::Sha256);

/// An authority, and certificates in a folder.
pub(crate) struct Pki {
    pub(crate) folder: tempfile::TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    /// With the certificates `server` and `gateway`.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let pki = Self { folder: tempfile::tempdir().unwrap(), ca };
        std::fs::write(pki.path("ca.pem"), pki.ca.pem()).unwrap();
        pki.issue("server", "localhost", &KeyPair::generate().unwrap());
        pki.issue("gateway", "gateway.test", &KeyPair::generate().unwrap());
        pki
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `NAME.pem` and `NAME.key`. Returns the certificate.
    pub(crate) fn issue(&self, name: &str, host: &str, key: &KeyPair) -> CertificateDer<'static> {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, host);
        let certificate = params.signed_by(key, &self.ca).unwrap();
        std::fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        certificate.der().clone()
    }

    /// Issues a certificate with a key of this kind, and returns both.
    pub(crate) fn site(
        &self,
        name: &str,
        algorithm: &'static rcgen::SignatureAlgorithm,
    ) -> (CertificateDer<'static>, Arc<LocalKey>) {
        let certificate = self.issue(name, "site.test", &KeyPair::generate_for(algorithm).unwrap());
        let key = LocalKey::from_file(&self.path(&format!("{name}.key"))).unwrap();
        (certificate, Arc::new(key))
    }

    pub(crate) fn settings(&self, address: SocketAddr, keys: &[Arc<dyn KeySource>]) -> Settings {
        let keys: Vec<_> = (0..)
            .zip(keys)
            .map(|(number, key)| Key::new(format!("key-{number}"), key.clone()))
            .collect();
        let client = Client::new(Identity::Name("gateway.test".to_owned()), keys.clone());
        let paths = [self.path("server.pem"), self.path("server.key"), self.path("ca.pem")];
        let [cert, key, ca] = paths.each_ref().map(PathBuf::as_path);
        Settings::new(vec![address], [cert, key, ca], vec![client], keys).unwrap()
    }

    pub(crate) fn server(&self, keys: &[Arc<dyn KeySource>]) -> Server {
        start(self.settings(loopback(), keys))
    }

    pub(crate) fn settings_of(
        &self,
        address: SocketAddr,
        key: &Arc<impl KeySource + 'static>,
    ) -> Settings {
        let key: Arc<dyn KeySource> = key.clone();
        self.settings(address, &[key])
    }

    pub(crate) fn server_of(&self, key: &Arc<impl KeySource + 'static>) -> Server {
        start(self.settings_of(loopback(), key))
    }

    pub(crate) fn config(&self, addresses: &[SocketAddr]) -> SignerConfig {
        let addresses = addresses.iter().map(ToString::to_string).collect();
        let [cert, key, ca] = ["gateway.pem", "gateway.key", "ca.pem"].map(|name| self.path(name));
        let tls = client_tls(&cert, &key, &ca).unwrap();
        let mut config = SignerConfig::new("test", addresses, tls);
        config.server_name = Some("localhost".to_owned());
        // Machines that test may be slow.
        config.timeout = DEADLINE;
        config.connect_timeout = DEADLINE;
        config
    }

    pub(crate) fn client(&self, addresses: &[SocketAddr]) -> Arc<SignerClient> {
        SignerClient::start(&self.config(addresses)).unwrap()
    }
}

pub(crate) fn start(settings: Settings) -> Server {
    Server::start(settings, |line| eprintln!("{line}")).unwrap()
}

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Signs with a source, and verifies.
pub(crate) fn sign(key: &dyn KeySource, scheme: Scheme) -> Result<(), SignError> {
    let digest = scheme.digest(b"message");
    let signature = key.sign(scheme, digest.as_ref())?;
    assert!(key.public_key().verifies(scheme, digest.as_ref(), &signature));
    Ok(())
}

/// Waits until all addresses are in a phase.
pub(crate) fn await_phase(client: &SignerClient, phase: Phase) {
    await_that(|| client.addresses().iter().all(|address| address.phase == phase));
}

pub(crate) fn await_that(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "it did not become so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A key that waits before it signs, until it is released or for a time, and counts.
#[derive(Debug)]
pub(crate) struct SlowKey {
    pub(crate) key: Arc<LocalKey>,
    pub(crate) delay: Mutex<Duration>,
    pub(crate) tried: AtomicUsize,
}

impl SlowKey {
    pub(crate) fn new(key: Arc<LocalKey>, delay: Duration) -> Arc<Self> {
        Arc::new(Self { key, delay: Mutex::new(delay), tried: AtomicUsize::new(0) })
    }
}

impl KeySource for SlowKey {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn may_block(&self) -> bool {
        true
    }

    fn public_key(&self) -> &PublicKey {
        self.key.public_key()
    }

    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError> {
        self.tried.fetch_add(1, Ordering::Relaxed);
        let delay = *self.delay.lock().unwrap();
        std::thread::sleep(delay);
        self.key.sign(scheme, digest)
    }
}

/// How a fake signer answers a request to sign. It answers pings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Behaviour {
    /// Signs another digest.
    Lies,
    /// Accepts requests and never answers them.
    IsMute,
    /// Like `IsMute`, and does not answer pings either, except the first of a connection.
    Hangs,
    /// Answers with bytes that are no message.
    SendsGarbage,
    /// Closes the connection.
    Closes,
}

/// A signer of its own, made of the protocol's messages.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicUsize>,
    _runtime: tokio::runtime::Runtime,
}

impl Fake {
    pub(crate) fn start(pki: &Pki, key: &Arc<LocalKey>, behaviour: Behaviour) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let roots = {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(pki.ca.der().clone()).unwrap();
            roots
        };
        let provider = pronghorn_engine::provider();
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .unwrap();
        let tls = server_tls(&pki.path("server.pem"), &pki.path("server.key"), verifier).unwrap();
        let listener = std::net::TcpListener::bind(loopback()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let (counter, key) = (requests.clone(), key.clone());
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let acceptor = TlsAcceptor::from(tls);
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, counter, key) = (acceptor.clone(), counter.clone(), key.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(tcp).await else { return };
                    // An error means that the client has closed the connection.
                    let _ = answer(stream, &key, behaviour, &counter).await;
                });
            }
        });
        Self { address, requests, _runtime: runtime }
    }
}

async fn answer(
    mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    key: &LocalKey,
    behaviour: Behaviour,
    requests: &AtomicUsize,
) -> std::io::Result<()> {
    let mut decoder = Decoder::new(MAX_MESSAGE_BYTES);
    let mut chunk = vec![0; 16 << 10];
    let mut pings = 0;
    loop {
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        decoder.handle_bytes(&chunk[..count]);
        let mut out = Vec::new();
        while let Some(message) = decoder.poll_message().unwrap() {
            let operation = message.operation.unwrap();
            if operation.opcode == Opcode::PING {
                pings += 1;
                if behaviour != Behaviour::Hangs || pings == 1 {
                    let pong = Operation::new(Opcode::PONG, operation.payload);
                    pong.encode(message.id, &mut out).unwrap();
                }
                continue;
            }
            requests.fetch_add(1, Ordering::Relaxed);
            match behaviour {
                Behaviour::Lies => {
                    let scheme = Scheme::of_opcode(operation.opcode).unwrap();
                    let signature = key.sign(scheme, scheme.digest(b"other").as_ref()).unwrap();
                    let answer = Operation::new(Opcode::RESPONSE, signature);
                    answer.encode(message.id, &mut out).unwrap();
                }
                Behaviour::IsMute | Behaviour::Hangs => {}
                Behaviour::SendsGarbage => out.extend([9; 100]),
                Behaviour::Closes => return Ok(()),
            }
        }
        stream.write_all(&out).await?;
        stream.flush().await?;
    }
}

/// Returns an address that refuses connections.
pub(crate) fn refusing() -> SocketAddr {
    // Bound and not listening, so that no other test gets the port. It is never closed.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&loopback().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    std::mem::forget(socket);
    address
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}
