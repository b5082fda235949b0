//! The server name of the TLS handshake, as handlers get it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use pronghorn_engine::{
    Config, Group, Handler, Protocol, Request, Responder, Response, Resumption, Target,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, NamedGroup, RootCertStore};

use crate::support::{Bench, PROTOCOLS, fetch, get, trust_in};

/// Responds with the server name, and whether the request was early data.
fn tell(_: usize) -> impl Handler {
    |request: Request, responder: Responder| {
        let name = request.peer.server_name.as_deref().unwrap_or("nothing");
        let text = format!("{name} early={}", request.peer.early_data);
        responder.send(Response::new(StatusCode::OK).with_body(text));
    }
}

/// A server with a certificate for two names and an address.
fn bench() -> Bench {
    let names = ["localhost", "other.example", "127.0.0.1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    Bench::with_group(
        &Group::new(1),
        &trust_in(CertificateDer::from(made.cert), key),
        &Config::default(),
        tell,
    )
}

/// Returns two responses on a connection, the second after the handshake.
fn ask(bench: &mut Bench, name: &str, protocol: Protocol, resumption: Resumption) -> [Bytes; 2] {
    let connector = bench.connector.clone();
    let target = Target {
        remote: bench.address,
        server_name: name.to_owned(),
        protocol: Some(protocol),
        secure: true,
        resumption,
    };
    bench.run(async move {
        let mut connection = connector.connect(&target).await.unwrap();
        let (_, first) = fetch(&mut connection, get("/")).await.unwrap();
        connection.handshake().await.unwrap();
        let (_, second) = fetch(&mut connection, get("/")).await.unwrap();
        [first, second]
    })
}

#[test]
fn handler_learns_the_name_that_the_client_asked_for() {
    for protocol in PROTOCOLS {
        let mut bench = bench();
        let names = [
            ("localhost", "localhost"),
            ("other.example", "other.example"),
            ("Other.EXAMPLE", "other.example"),
        ];
        for (asked, told) in names {
            let told = Bytes::from(format!("{told} early=false"));
            assert_eq!(
                ask(&mut bench, asked, protocol, Resumption::Off),
                [told.clone(), told],
                "{protocol}"
            );
        }
    }
}

#[test]
fn address_target_sends_no_server_name() {
    for protocol in PROTOCOLS {
        let mut bench = bench();
        assert_eq!(
            ask(&mut bench, "127.0.0.1", protocol, Resumption::Off)[0],
            "nothing early=false",
            "{protocol}"
        );
    }
}

#[test]
fn request_in_early_data_has_the_name_of_its_own_connection() {
    for protocol in PROTOCOLS {
        let mut bench = bench();
        ask(&mut bench, "other.example", protocol, Resumption::Session);
        let again = ask(&mut bench, "other.example", protocol, Resumption::EarlyData);
        assert_eq!(again, ["other.example early=true", "other.example early=false"], "{protocol}");
    }
}

#[test]
fn requests_of_a_connection_share_the_name() {
    for protocol in PROTOCOLS {
        let names = Rc::new(RefCell::new(Vec::new()));
        let seen = names.clone();
        let keep = move |_| {
            let seen = seen.clone();
            move |request: Request, responder: Responder| {
                seen.borrow_mut().extend(request.peer.server_name);
                responder.send(Response::new(StatusCode::OK));
            }
        };
        let mut bench = Bench::new(1, &Config::default(), keep);
        ask(&mut bench, "localhost", protocol, Resumption::Off);
        let names = names.borrow();
        // The name is shared: a request must not cost a copy.
        assert!(names.len() == 2 && Arc::ptr_eq(&names[0], &names[1]), "{protocol}");
    }
}

#[test]
fn name_is_known_after_a_client_was_asked_for_another_key_share() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut trust = trust_in(certificate.clone(), key);
    let mut provider = CryptoProvider::clone(&pronghorn_engine::provider());
    // The server supports only the second group.
    provider.kx_groups = vec![kx_group::MLKEM1024, kx_group::X25519];
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap();
    trust.client = client.with_root_certificates(roots).with_no_client_auth();
    let mut bench = Bench::with_group(&Group::new(1), &trust, &Config::default(), tell);
    for protocol in PROTOCOLS {
        let connection = bench.connect(protocol);
        assert_eq!(connection.tls().unwrap().key_exchange, Some(NamedGroup::X25519), "{protocol}");
        drop(connection);
        assert_eq!(
            ask(&mut bench, "localhost", protocol, Resumption::Off)[0],
            "localhost early=false",
            "{protocol}"
        );
    }
}
