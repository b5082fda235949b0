use std::sync::atomic::AtomicBool;

use super::super::local_key::LocalKey;
use super::super::scheme::Hash;
use super::*;

const SCHEME: Scheme = Scheme::Ecdsa(Hash::Sha256);

/// A key that can be made to fail, and counts how often it is tried.
#[derive(Debug)]
struct Fake {
    name: &'static str,
    key: Arc<LocalKey>,
    error: Mutex<Option<SignError>>,
    tried: AtomicU32,
    blocks: AtomicBool,
}

impl Fake {
    fn new(name: &'static str, key: &Arc<LocalKey>) -> Arc<Self> {
        let key = key.clone();
        let (error, tried, blocks) = (Mutex::default(), AtomicU32::new(0), AtomicBool::new(false));
        Arc::new(Self { name, key, error, tried, blocks })
    }

    fn fail(&self, error: impl Into<Option<SignError>>) {
        *self.error.lock().unwrap() = error.into();
    }

    fn tried(&self) -> u32 {
        self.tried.load(Ordering::Relaxed)
    }
}

impl KeySource for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn may_block(&self) -> bool {
        self.blocks.load(Ordering::Relaxed)
    }

    fn public_key(&self) -> &PublicKey {
        self.key.public_key()
    }

    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError> {
        self.tried.fetch_add(1, Ordering::Relaxed);
        match self.error.lock().unwrap().clone() {
            Some(error) => Err(error),
            None => self.key.sign(scheme, digest),
        }
    }
}

fn key() -> Arc<LocalKey> {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    Arc::new(LocalKey::from_pem("key", pair.serialize_pem().as_bytes()).unwrap())
}

type Events = Arc<Mutex<Vec<String>>>;

fn chain(sources: &[&Arc<Fake>]) -> (KeyChain, Events) {
    let events = Events::default();
    let heard = events.clone();
    let sources: Vec<_> =
        sources.iter().map(|source| (*source).clone() as Arc<dyn KeySource>).collect();
    let public = sources[0].public_key().clone();
    let chain = KeyChain::new(public, sources, move |event| {
        heard.lock().unwrap().push(match event {
            KeyEvent::Failed { source, .. } => format!("{source} failed"),
            KeyEvent::Recovered { source } => format!("{source} recovered"),
        });
    });
    (chain.unwrap(), events)
}

fn signs(chain: &KeyChain) -> bool {
    let digest = SCHEME.digest(b"message");
    chain.sign(SCHEME, digest.as_ref()).is_ok_and(|signature| {
        KeySource::public_key(chain).verifies(SCHEME, digest.as_ref(), &signature)
    })
}

fn unavailable() -> SignError {
    SignError::Unavailable("gone".to_owned())
}

#[test]
fn sources_are_tried_in_order() {
    let key = key();
    let (first, second) = (Fake::new("first", &key), Fake::new("second", &key));
    let (chain, events) = chain(&[&first, &second]);
    assert!(signs(&chain) && signs(&chain));
    assert_eq!((first.tried(), second.tried()), (2, 0));
    assert!(events.lock().unwrap().is_empty());
}

#[test]
fn failed_source_is_skipped_while_another_works() {
    let key = key();
    let (first, second) = (Fake::new("first", &key), Fake::new("second", &key));
    let (chain, events) = chain(&[&first, &second]);
    first.fail(unavailable());
    for _ in 0..5 {
        assert!(signs(&chain));
    }
    assert_eq!((first.tried(), second.tried()), (1, 5));
    assert_eq!(*events.lock().unwrap(), ["first failed"]);
    let states = chain.sources();
    assert!(states[0].is_skipped && !states[1].is_skipped);
    assert_eq!(states[0].last_failure, Some(unavailable()));
    assert_eq!((states[0].failures, states[1].signatures), (1, 5));
}

#[test]
fn skipped_source_is_tried_when_the_others_fail() {
    let key = key();
    let (first, second) = (Fake::new("first", &key), Fake::new("second", &key));
    let (chain, events) = chain(&[&first, &second]);
    first.fail(unavailable());
    assert!(signs(&chain));
    first.fail(None);
    second.fail(SignError::WrongSignature);
    assert!(signs(&chain));
    assert_eq!((first.tried(), second.tried()), (2, 2));
    assert_eq!(*events.lock().unwrap(), ["first failed", "second failed", "first recovered"]);
}

#[test]
fn failure_of_all_names_each_reason() {
    let key = key();
    let (first, second) = (Fake::new("first", &key), Fake::new("second", &key));
    let (chain, _) = chain(&[&first, &second]);
    first.fail(unavailable());
    second.fail(SignError::WrongSignature);
    let error = chain.sign(SCHEME, SCHEME.digest(b"").as_ref()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no source of the key signed: first: gone; second: the signature is wrong"
    );
}

#[test]
fn busy_source_is_not_skipped() {
    let key = key();
    let (first, second) = (Fake::new("first", &key), Fake::new("second", &key));
    let (chain, events) = chain(&[&first, &second]);
    first.fail(SignError::Busy(1));
    assert!(signs(&chain) && signs(&chain));
    assert_eq!((first.tried(), second.tried()), (2, 2));
    assert!(events.lock().unwrap().is_empty());
}

/// Time passes by numbers, so that no test waits for it.
#[test]
fn one_signature_probes_after_a_pause_that_doubles() {
    let entry = Entry::new(Fake::new("first", &key()));
    let fail = |turn, now| entry.on_failure(turn, unavailable(), now, &|_| {});
    assert!(entry.turn(0) == Turn::Working);
    fail(Turn::Working, 0);
    assert!(entry.turn(999) == Turn::Skipped);
    assert!(entry.turn(1000) == Turn::Probe);
    // Another signature at the same time.
    assert!(entry.turn(1000) == Turn::Skipped);
    fail(Turn::Probe, 1500);
    assert!(entry.turn(3499) == Turn::Skipped);
    assert!(entry.turn(3500) == Turn::Probe);
    // A failure as a last resort changes nothing.
    let until = entry.skipped_until.load(Ordering::Relaxed);
    fail(Turn::Skipped, 4000);
    assert_eq!(entry.skipped_until.load(Ordering::Relaxed), until);
    entry.on_signature(&|_| {});
    assert!(entry.turn(4001) == Turn::Working);
}

#[test]
fn source_of_another_key_is_refused() {
    let (mine, other) = (Fake::new("mine", &key()), Fake::new("other", &key()));
    let public = mine.public_key().clone();
    let refused = KeyChain::new(public, vec![mine, other], |_| {});
    assert_eq!(refused.err().as_deref(), Some("other"));
}

#[test]
fn chain_may_block_if_a_source_may() {
    let key = key();
    let (first, second) = (Fake::new("first", &key), Fake::new("second", &key));
    let (chain, _) = chain(&[&first, &second]);
    assert!(!chain.may_block());
    second.blocks.store(true, Ordering::Relaxed);
    assert!(chain.may_block());
}
