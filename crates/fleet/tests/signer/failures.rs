//! Signers that are gone, hung, slow or lying, and what takes over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pronghorn_fleet::signer::{
    KeyChain, KeySource, LocalKey, Phase, PublicKey, RemoteKey, Scheme, SignError, SignerClient,
};

use super::support::{Behaviour, Fake, P256, Pki, await_phase, await_that, refusing, sign};

#[test]
fn next_address_signs_when_one_refuses_connections() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    let client = pki.client(&[refusing(), server.addresses()[0]]);
    let remote = RemoteKey::new(client.clone(), key.public_key().clone());
    for _ in 0..4 {
        assert_eq!(sign(&remote, P256), Ok(()));
    }
    let states = client.addresses();
    assert_eq!(states[0].signatures, 0);
    assert_eq!(states[1].signatures, 4);
    assert!(states[0].last_error.as_ref().unwrap().contains("cannot connect"));
}

#[test]
fn wrong_signature_is_not_used_and_the_next_address_signs() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let fake = Fake::start(&pki, &key, Behaviour::Lies);
    let alone = RemoteKey::new(pki.client(&[fake.address]), key.public_key().clone());
    assert_eq!(sign(&alone, P256), Err(SignError::WrongSignature));
    let server = pki.server_of(&key);
    let client = pki.client(&[fake.address, server.addresses()[0]]);
    await_phase(&client, Phase::Connected);
    let remote = RemoteKey::new(client.clone(), key.public_key().clone());
    for _ in 0..10 {
        assert_eq!(sign(&remote, P256), Ok(()));
    }
    // It is tried last for a while after it has lied.
    let liar = &client.addresses()[0];
    assert_eq!((liar.signatures, liar.failures > 0), (0, true));
    assert_eq!(liar.last_error.as_deref(), Some("the signature is wrong"));
}

#[test]
fn next_address_signs_when_one_does_not_answer() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    let fake = Fake::start(&pki, &key, Behaviour::IsMute);
    let mut config = pki.config(&[fake.address, server.addresses()[0]]);
    config.timeout = Duration::from_secs(4);
    let client = SignerClient::start(&config).unwrap();
    await_phase(&client, Phase::Connected);
    let remote = RemoteKey::new(client, key.public_key().clone());
    // In turn: one of them begins with the mute one, and moves on after its share of the time.
    for _ in 0..2 {
        assert_eq!(sign(&remote, P256), Ok(()));
    }
    assert_eq!(fake.requests.load(Ordering::Relaxed), 1);
}

#[test]
fn signature_fails_when_the_time_is_over() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let fake = Fake::start(&pki, &key, Behaviour::IsMute);
    let mut config = pki.config(&[fake.address]);
    config.timeout = Duration::from_millis(100);
    let client = SignerClient::start(&config).unwrap();
    await_phase(&client, Phase::Connected);
    let remote = RemoteKey::new(client.clone(), key.public_key().clone());
    assert_eq!(sign(&remote, P256), Err(SignError::TimedOut(Duration::from_millis(100))));
    assert!(client.addresses()[0].is_avoided);
    assert_eq!(client.outstanding(), 0);
}

/// A signer whose event loop hangs does not answer pings either: the connection ends, and requests
/// fail at once instead of after their timeout.
#[test]
fn hung_connection_is_ended() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let fake = Fake::start(&pki, &key, Behaviour::Hangs);
    let mut config = pki.config(&[fake.address]);
    config.timeout = Duration::from_millis(200);
    let client = SignerClient::start(&config).unwrap();
    await_phase(&client, Phase::Connected);
    let remote = RemoteKey::new(client.clone(), key.public_key().clone());
    assert!(sign(&remote, P256).is_err());
    await_that(|| {
        let error = client.addresses()[0].last_error.clone();
        error.is_some_and(|error| error.contains("no answer to a ping"))
    });
}

#[test]
fn connection_that_ends_or_sends_garbage_fails_its_requests() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    for behaviour in [Behaviour::Closes, Behaviour::SendsGarbage] {
        let fake = Fake::start(&pki, &key, behaviour);
        let client = pki.client(&[fake.address]);
        let remote = RemoteKey::new(client, key.public_key().clone());
        let error = sign(&remote, P256).unwrap_err();
        assert!(matches!(error, SignError::Unavailable(_)), "{behaviour:?}: {error}");
    }
}

/// The answer of a slow address counts, although the next one has been sent the request meanwhile.
#[test]
fn slow_address_still_answers() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let mute = Fake::start(&pki, &key, Behaviour::IsMute);
    // Signs only when the mute one has a request, too.
    let server =
        pki.server(&[Arc::new(LateKey { key: key.clone(), after: mute.requests.clone() })]);
    // The more addresses, the shorter is the share of the time of each.
    let mut addresses = vec![refusing(); 30];
    addresses.splice(..2, [server.addresses()[0], mute.address]);
    let client = pki.client(&addresses);
    await_that(|| client.addresses()[..2].iter().all(|one| one.phase == Phase::Connected));
    let remote = RemoteKey::new(client.clone(), key.public_key().clone());
    assert_eq!(sign(&remote, P256), Ok(()));
    assert_eq!(client.addresses()[0].signatures, 1);
}

#[derive(Debug)]
struct LateKey {
    key: Arc<LocalKey>,
    after: Arc<AtomicUsize>,
}

impl KeySource for LateKey {
    fn name(&self) -> &'static str {
        "late"
    }

    fn may_block(&self) -> bool {
        true
    }

    fn public_key(&self) -> &PublicKey {
        self.key.public_key()
    }

    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError> {
        await_that(|| self.after.load(Ordering::Relaxed) > 0);
        self.key.sign(scheme, digest)
    }
}

#[test]
fn chain_goes_on_to_the_next_key_and_back() {
    let pki = Pki::new();
    let (_, key) = pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let server = pki.server_of(&key);
    let address = server.addresses()[0];
    let client = pki.client(&[address]);
    let public = key.public_key().clone();
    let remote: Arc<dyn KeySource> = Arc::new(RemoteKey::new(client.clone(), public.clone()));
    let chain = KeyChain::new(public, vec![remote, key.clone()], |_| {}).unwrap();
    assert!(chain.may_block());
    assert_eq!(sign(&chain, P256), Ok(()));
    drop(server);
    await_phase(&client, Phase::Failed);
    assert_eq!(sign(&chain, P256), Ok(()));
    let states = chain.sources();
    assert_eq!((states[0].signatures, states[0].failures, states[1].signatures), (1, 1, 1));
    let _server = super::support::start(pki.settings(address, &[key]));
    await_phase(&client, Phase::Connected);
    // When the pause is over.
    await_that(|| {
        assert_eq!(sign(&chain, P256), Ok(()));
        chain.sources()[0].signatures > 1
    });
    assert!(!chain.sources()[0].is_skipped);
}

#[test]
fn invalid_addresses_are_told_why() {
    let pki = Pki::new();
    for (address, reason) in [
        ("localhost", "invalid address \"localhost\" of a signer: use host:port"),
        ("localhost:0", "invalid address \"localhost:0\" of a signer: use host:port"),
        (":2407", "invalid address \":2407\" of a signer: use host:port"),
        ("a b:1", "invalid server name \"a b\" of a signer"),
    ] {
        let mut config = pki.config(&[]);
        assert_eq!(config.check(), Err("a signer needs at least one address".to_owned()));
        config.addresses = vec![address.to_owned()];
        config.server_name = None;
        assert_eq!(config.check(), Err(reason.to_owned()));
    }
}
