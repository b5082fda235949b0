//! The client with the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pronghorn_fleet::signer::protocol::{Decoder, ErrorCode, MAX_MESSAGE_BYTES, Opcode, Operation};
use pronghorn_fleet::signer::server::{Client, Identity, Key, Settings};
use pronghorn_fleet::signer::{
    Hash, KeySource, Phase, RemoteKey, Scheme, Server, SignError, SignerClient, client_tls,
};
use rcgen::KeyPair;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{DEADLINE, P256, PSS, Pki, SlowKey, await_phase, await_that, sign, start};

const HASHES: [Hash; 3] = [Hash::Sha256, Hash::Sha384, Hash::Sha512];

#[test]
fn every_scheme_of_every_kind_of_key_is_signed() {
    let pki = Pki::new();
    let sites = [
        pki.site("rsa", &rcgen::PKCS_RSA_SHA256),
        pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256),
        pki.site("p384", &rcgen::PKCS_ECDSA_P384_SHA384),
    ];
    let keys: Vec<_> = sites.iter().map(|(_, key)| key.clone() as Arc<dyn KeySource>).collect();
    let server = pki.server(&keys);
    let client = pki.client(server.addresses());
    for key in keys {
        let remote = RemoteKey::new(client.clone(), key.public_key().clone());
        for hash in HASHES {
            for scheme in [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash), Scheme::Ecdsa(hash)] {
                let expected = if key.public_key().kind().supports(scheme) {
                    Ok(())
                } else {
                    Err(SignError::Unsupported(scheme))
                };
                assert_eq!(sign(&remote, scheme), expected);
            }
        }
    }
    let metrics = server.metrics();
    assert!(metrics.contains("pronghorn_signer_signatures_total{key=\"key-0\"} 6\n"), "{metrics}");
    assert!(metrics.contains("pronghorn_signer_connections_open 1\n"), "{metrics}");
    assert_eq!(client.addresses()[0].signatures, 12);
}

#[test]
fn many_threads_share_one_connection() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    let client = pki.client(server.addresses());
    let remote = RemoteKey::new(client.clone(), key.public_key().clone());
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| (0..20).for_each(|_| sign(&remote, P256).unwrap()));
        }
    });
    let address = &client.addresses()[0];
    assert_eq!((address.signatures, address.connections), (640, 1));
    assert_eq!(client.outstanding(), 0);
}

#[test]
fn key_that_the_client_may_not_use_is_not_found() {
    let pki = Pki::new();
    let (_, own) = pki.site("own", &rcgen::PKCS_ECDSA_P256_SHA256);
    let (_, other) = pki.site("other", &rcgen::PKCS_ECDSA_P256_SHA256);
    let keys = [Key::new("own", own.clone()), Key::new("other", other.clone())];
    let client = Client::new(Identity::Name("gateway.test".to_owned()), [keys[0].clone()]);
    let paths = ["server.pem", "server.key", "ca.pem"].map(|name| pki.path(name));
    let paths = paths.each_ref().map(std::path::PathBuf::as_path);
    let settings =
        Settings::new(vec![super::support::loopback()], paths, vec![client], keys.into());
    let server = start(settings.unwrap());
    let client = pki.client(server.addresses());
    let remote = |key: &dyn KeySource| RemoteKey::new(client.clone(), key.public_key().clone());
    assert_eq!(sign(&remote(&*own), P256), Ok(()));
    let refused = Err(SignError::Refused(ErrorCode::KEY_NOT_FOUND));
    assert_eq!(sign(&remote(&*other), P256), refused);
    let (_, unknown) = pki.site("unknown", &rcgen::PKCS_ECDSA_P256_SHA256);
    assert_eq!(sign(&remote(&*unknown), P256), refused);
    assert!(server.metrics().contains("requests_refused_total{code=\"key_not_found\"} 2\n"));
}

#[test]
fn client_that_is_not_on_the_list_is_denied() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    pki.issue("stranger", "stranger.test", &KeyPair::generate().unwrap());
    let mut config = pki.config(server.addresses());
    config.tls =
        client_tls(&pki.path("stranger.pem"), &pki.path("stranger.key"), &pki.path("ca.pem"))
            .unwrap();
    let client = SignerClient::start(&config).unwrap();
    let error = sign(&RemoteKey::new(client, key.public_key().clone()), P256).unwrap_err();
    assert!(error.to_string().contains("AccessDenied"), "{error}");
    await_that(|| server.metrics().contains("signer_connections_accepted_total 0\n"));
}

#[test]
fn client_of_another_authority_is_denied() {
    let (pki, other) = (Pki::new(), Pki::new());
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    let mut config = pki.config(server.addresses());
    let [cert, private] = ["gateway.pem", "gateway.key"].map(|name| other.path(name));
    config.tls = client_tls(&cert, &private, &pki.path("ca.pem")).unwrap();
    let client = SignerClient::start(&config).unwrap();
    let error = sign(&RemoteKey::new(client, key.public_key().clone()), P256).unwrap_err();
    assert!(matches!(error, SignError::Unavailable(_)), "{error}");
}

#[test]
fn server_of_another_authority_is_not_trusted() {
    let (pki, other) = (Pki::new(), Pki::new());
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    let client = other.client(server.addresses());
    let error = sign(&RemoteKey::new(client, key.public_key().clone()), P256).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

/// What is in flight when the server ends is answered; then the address fails.
#[test]
fn shutdown_answers_what_is_in_flight() {
    let pki = Pki::new();
    let (_, key) = pki.site("rsa", &rcgen::PKCS_RSA_SHA256);
    let slow = SlowKey::new(key, Duration::from_millis(300));
    let server = pki.server_of(&slow);
    let client = pki.client(server.addresses());
    let remote = RemoteKey::new(client.clone(), slow.public_key().clone());
    let signer = {
        let remote = remote.clone();
        std::thread::spawn(move || sign(&remote, PSS))
    };
    await_that(|| slow.tried.load(Ordering::Relaxed) == 1);
    assert_eq!(server.shutdown(DEADLINE), 0);
    assert_eq!(signer.join().unwrap(), Ok(()));
    await_phase(&client, Phase::Failed);
    assert!(matches!(sign(&remote, PSS), Err(SignError::Unavailable(_))));
}

#[test]
fn client_reconnects_to_a_server_that_was_restarted() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    let address = server.addresses()[0];
    let client = pki.client(&[address]);
    let remote = RemoteKey::new(client.clone(), key.public_key().clone());
    assert_eq!(sign(&remote, P256), Ok(()));
    server.shutdown(DEADLINE);
    await_phase(&client, Phase::Failed);
    let restarted = Server::start(pki.settings(address, &[key]), |_| {}).unwrap();
    await_phase(&client, Phase::Connected);
    assert_eq!(sign(&remote, P256), Ok(()));
    drop(restarted);
}

#[test]
fn request_over_the_clients_limit_fails_at_once() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let slow = SlowKey::new(key, Duration::from_millis(200));
    let server = pki.server_of(&slow);
    let mut config = pki.config(server.addresses());
    config.outstanding = 1;
    let client = SignerClient::start(&config).unwrap();
    let remote = RemoteKey::new(client, slow.public_key().clone());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| sign(&remote, P256));
        await_that(|| slow.tried.load(Ordering::Relaxed) == 1);
        assert_eq!(sign(&remote, P256), Err(SignError::Busy(1)));
        assert_eq!(first.join().unwrap(), Ok(()));
    });
    assert_eq!(sign(&remote, P256), Ok(()));
}

#[test]
fn request_over_the_servers_limit_is_refused() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let slow = SlowKey::new(key, Duration::from_millis(200));
    let mut settings = pki.settings_of(super::support::loopback(), &slow);
    settings.limits.requests = 1;
    let server = start(settings);
    let client = pki.client(server.addresses());
    let remote = RemoteKey::new(client, slow.public_key().clone());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| sign(&remote, P256));
        await_that(|| slow.tried.load(Ordering::Relaxed) == 1);
        assert_eq!(sign(&remote, P256), Err(SignError::Refused(ErrorCode::INTERNAL)));
        assert_eq!(first.join().unwrap(), Ok(()));
    });
    assert!(server.metrics().contains("pronghorn_signer_requests_overloaded_total 1\n"));
}

/// Runs a raw connection of an allowed client.
fn raw<R>(
    pki: &Pki,
    server: &Server,
    run: impl AsyncFnOnce(tokio_rustls::client::TlsStream<tokio::net::TcpStream>) -> R,
) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tcp = tokio::net::TcpStream::connect(server.addresses()[0]).await.unwrap();
        let name = "localhost".try_into().unwrap();
        let tls = pki.config(server.addresses()).tls;
        let stream = tokio_rustls::TlsConnector::from(tls).connect(name, tcp).await.unwrap();
        tokio::time::timeout(DEADLINE, run(stream)).await.unwrap()
    })
}

async fn answers(stream: &mut (impl AsyncReadExt + Unpin), count: usize) -> Vec<(u32, Operation)> {
    let mut decoder = Decoder::new(MAX_MESSAGE_BYTES);
    let mut received = Vec::new();
    let mut chunk = vec![0; 16 << 10];
    while received.len() < count {
        let length = stream.read(&mut chunk).await.unwrap();
        assert_ne!(length, 0, "closed after {} answers", received.len());
        decoder.handle_bytes(&chunk[..length]);
        while let Some(message) = decoder.poll_message().unwrap() {
            received.push((message.id, message.operation.unwrap()));
        }
    }
    received
}

#[test]
fn invalid_requests_get_the_documented_errors() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    let with = |opcode, payload: &[u8]| Operation {
        ski: Some(key.public_key().ski()),
        ..Operation::new(opcode, payload)
    };
    let cases = [
        (with(Opcode::ECDSA_SIGN_SHA256, &[1; 32]), None),
        (with(Opcode::RSA_DECRYPT, &[1; 32]), Some(ErrorCode::BAD_OPCODE)),
        (with(Opcode::ECDSA_SIGN_SHA1, &[1; 20]), Some(ErrorCode::BAD_OPCODE)),
        (with(Opcode(0x77), &[]), Some(ErrorCode::BAD_OPCODE)),
        (with(Opcode::PONG, &[]), Some(ErrorCode::UNEXPECTED_OPCODE)),
        (with(Opcode::ECDSA_SIGN_SHA256, &[1; 31]), Some(ErrorCode::CRYPTO)),
        (with(Opcode::RSA_SIGN_SHA256, &[1; 32]), Some(ErrorCode::CRYPTO)),
        (Operation::new(Opcode::ECDSA_SIGN_SHA256, [1; 32]), Some(ErrorCode::KEY_NOT_FOUND)),
    ];
    raw(&pki, &server, async |mut stream| {
        let mut bytes = Vec::new();
        for (id, (operation, _)) in (0..).zip(&cases) {
            operation.encode(id, &mut bytes).unwrap();
        }
        // A body that is malformed does not end the connection.
        bytes.extend([1, 0, 0, 2, 0, 0, 0, 99, 0x11, 0]);
        stream.write_all(&bytes).await.unwrap();
        for (id, answer) in answers(&mut stream, cases.len() + 1).await {
            let expected = match cases.get(id as usize) {
                Some((_, expected)) => *expected,
                None => Some(ErrorCode::FORMAT),
            };
            assert_eq!(answer.error_code(), expected, "{id}");
        }
    });
}

#[test]
fn message_over_the_limit_or_of_another_version_ends_the_connection() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    for (bytes, code) in [
        ([1, 0, 0x20, 0, 0, 0, 0, 7], ErrorCode::FORMAT),
        ([2, 0, 0, 0, 0, 0, 0, 7], ErrorCode::VERSION_MISMATCH),
    ] {
        raw(&pki, &server, async |mut stream| {
            stream.write_all(&bytes).await.unwrap();
            let answer = answers(&mut stream, 1).await.remove(0);
            assert_eq!((answer.0, answer.1.error_code()), (7, Some(code)));
            assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
        });
    }
}

/// A client that sends requests and never reads. Its answers are bounded, and it is closed.
#[test]
fn client_that_does_not_read_is_closed() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let mut settings = pki.settings_of(super::support::loopback(), &key);
    settings.limits.write_timeout.0 = Duration::from_millis(500);
    let server = start(settings);
    raw(&pki, &server, async |mut stream| {
        let mut bytes = Vec::new();
        let ping = Operation::new(Opcode::PING, [7; 900]);
        (0..64).for_each(|id| ping.encode(id, &mut bytes).unwrap());
        // Until the server no longer reads, and then closes.
        while stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok() {}
    });
    await_that(|| server.metrics().contains("pronghorn_signer_slow_readers_total 1\n"));
    await_that(|| server.metrics().contains("pronghorn_signer_connections_open 0\n"));
}

#[test]
fn silent_connections_are_closed() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let mut settings = pki.settings_of(super::support::loopback(), &key);
    settings.limits.idle_timeout.0 = Duration::from_millis(100);
    settings.limits.handshake_timeout.0 = Duration::from_secs(1);
    let server = start(settings);
    raw(&pki, &server, async |mut stream| {
        assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    });
    // One that never begins its handshake.
    let mut silent = std::net::TcpStream::connect(server.addresses()[0]).unwrap();
    silent.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(std::io::Read::read(&mut silent, &mut [0; 16]).unwrap(), 0);
    await_that(|| server.metrics().contains("pronghorn_signer_handshakes_failed_total 1\n"));
}

#[test]
fn connections_over_the_limit_are_closed() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let mut settings = pki.settings_of(super::support::loopback(), &key);
    settings.limits.connections = 1;
    let server = start(settings);
    let client = pki.client(server.addresses());
    let remote = RemoteKey::new(client, key.public_key().clone());
    assert_eq!(sign(&remote, P256), Ok(()));
    raw(&pki, &server, async |mut stream| {
        // Closed without an end of the TLS stream.
        assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0);
    });
    assert!(server.metrics().contains("pronghorn_signer_connections_refused_total 1\n"));
    assert_eq!(sign(&remote, P256), Ok(()));
}
