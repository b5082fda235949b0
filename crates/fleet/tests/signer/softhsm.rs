//! Keys in SoftHSM2, in a process of its own for each token, since the module reads its
//! configuration once.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_fleet::signer::{
    Hash, KeyKind, KeySource, Pkcs11Error, Pkcs11Key, Pkcs11Uri, RemoteKey, Scheme,
};

use super::support::{DEADLINE, P256, PSS, Pki, sign};

const MODULES: [&str; 2] =
    ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"];
/// Set in the process that has a token; the value is its folder.
const FOLDER: &str = "PRONGHORN_TEST_TOKEN";

fn module() -> &'static str {
    MODULES.into_iter().find(|path| Path::new(path).exists()).expect("install softhsm2")
}

/// Runs a test in a process that has a token with three keys and their PIN 1234.
fn with_token(name: &str, test: impl FnOnce(&Path)) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return test(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::create_dir(path.join("tokens")).unwrap();
    let config = format!("directories.tokendir = {}/tokens\n", path.display());
    std::fs::write(path.join("softhsm2.conf"), config).unwrap();
    std::fs::write(path.join("pin"), "1234\n").unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .env("SOFTHSM2_CONF", path.join("softhsm2.conf"))
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{program}: {output:?}");
    };
    run(
        "softhsm2-util",
        &["--init-token", "--free", "--label", "T", "--pin", "1234", "--so-pin", "5678"],
    );
    for (label, id, kind) in
        [("rsa", "01", "rsa:2048"), ("p256", "02", "EC:prime256v1"), ("p384", "03", "EC:secp384r1")]
    {
        let common = ["--module", module(), "--token-label", "T", "--login", "--pin", "1234"];
        let make = ["--keypairgen", "--key-type", kind, "--label", label, "--id", id];
        run("pkcs11-tool", &[&common[..], &make].concat());
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("softhsm::{name}"), "--nocapture"])
        .env(FOLDER, path)
        .env("SOFTHSM2_CONF", path.join("softhsm2.conf"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

fn uri(folder: &Path, key: &str) -> Pkcs11Uri {
    let text = format!("pkcs11:token=T;{key}?module-path={}&pin-source=pin", module());
    text.parse::<Pkcs11Uri>().unwrap().in_folder(folder)
}

fn open(folder: &Path, key: &str) -> Result<Pkcs11Key, Pkcs11Error> {
    Pkcs11Key::open(&uri(folder, key), None, DEADLINE)
}

#[test]
fn token_signs_every_scheme() {
    with_token("token_signs_every_scheme", |folder| {
        for (key, kind) in [
            ("object=rsa", KeyKind::Rsa),
            ("id=%02", KeyKind::P256),
            ("object=p384;id=%03;type=private", KeyKind::P384),
        ] {
            let key = open(folder, key).unwrap();
            assert_eq!(key.public_key().kind(), kind);
            assert!(key.may_block());
            for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
                for scheme in [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash), Scheme::Ecdsa(hash)] {
                    assert_eq!(sign(&key, scheme).is_ok(), kind.supports(scheme), "{scheme:?}");
                }
            }
        }
    });
}

#[test]
fn many_threads_use_several_sessions() {
    with_token("many_threads_use_several_sessions", |folder| {
        let key = open(folder, "object=p256").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| (0..10).for_each(|_| sign(&key, P256).unwrap()));
            }
        });
    });
}

/// Another part of the process logs out, as a token does that was reset.
#[test]
fn key_logs_in_again_after_a_logout() {
    with_token("key_logs_in_again_after_a_logout", |folder| {
        let key = open(folder, "object=rsa").unwrap();
        assert_eq!(sign(&key, PSS), Ok(()));
        let module = cryptoki::context::Pkcs11::new(module()).unwrap();
        for slot in module.get_slots_with_token().unwrap() {
            // Slots without a token refuse it.
            if let Ok(session) = module.open_ro_session(slot) {
                let _ = session.logout();
            }
        }
        assert_eq!(sign(&key, PSS), Ok(()));
    });
}

/// A wrong PIN is tried once, since a token counts attempts and locks itself; a corrected one is
/// tried.
#[test]
fn refused_pin_is_not_tried_again() {
    with_token("refused_pin_is_not_tried_again", |folder| {
        let keys = ["object=rsa", "object=p256"].map(|key| open(folder, key).unwrap());
        assert_eq!(sign(&keys[0], PSS), Ok(()));
        std::fs::write(folder.join("pin"), "9999").unwrap();
        let module = cryptoki::context::Pkcs11::new(module()).unwrap();
        for slot in module.get_slots_with_token().unwrap() {
            if let Ok(session) = module.open_ro_session(slot) {
                let _ = session.logout();
            }
        }
        let error = sign(&keys[0], PSS).unwrap_err().to_string();
        assert!(error.contains("the token refused the PIN (PinIncorrect)"), "{error}");
        // By no other key of the token either.
        for (key, scheme) in [(&keys[0], PSS), (&keys[1], P256)] {
            let error = sign(key, scheme).unwrap_err().to_string();
            assert!(error.contains("not tried again"), "{error}");
        }
        std::fs::write(folder.join("pin"), "1234").unwrap();
        for (key, scheme) in [(&keys[0], PSS), (&keys[1], P256)] {
            assert_eq!(sign(key, scheme), Ok(()));
        }
    });
}

#[test]
fn unusable_keys_are_told_why() {
    with_token("unusable_keys_are_told_why", |folder| {
        let error = |text: &str| {
            let uri: Pkcs11Uri = text.replace("MODULE", module()).parse().unwrap();
            let error = Pkcs11Key::open(&uri.in_folder(folder), None, DEADLINE).unwrap_err();
            assert!(!error.hint().is_empty());
            error.to_string()
        };
        for (uri, reason) in [
            ("pkcs11:token=U;object=rsa?module-path=MODULE&pin-source=pin", "the module has \"T\""),
            ("pkcs11:object=no;token=T?module-path=MODULE&pin-source=pin", "0 private keys match"),
            ("pkcs11:token=T;object=rsa?module-path=MODULE&pin-source=no", "cannot read the PIN"),
            ("pkcs11:token=T;object=rsa?module-path=/lib/no.so&pin-source=pin", "cannot load"),
            ("pkcs11:token=T;object=rsa?module-path=pin&pin-source=pin", "cannot load"),
        ] {
            let error = error(uri);
            assert!(error.contains(reason), "{uri}\n{error}");
        }
        // Not logged in yet, since no key was opened.
        let pin = "pkcs11:token=T;object=rsa?module-path=MODULE&pin-value=0000";
        assert_eq!(error(pin), "the token refused the PIN (PinIncorrect)");
        let none = "pkcs11:token=T;object=rsa?module-path=MODULE";
        assert_eq!(error(none), "the token needs a PIN, and the URI has none");
    });
}

#[test]
fn certificate_of_another_key_is_refused() {
    with_token("certificate_of_another_key_is_refused", |folder| {
        let (_, other) = Pki::new().site("rsa", &rcgen::PKCS_RSA_SHA256);
        let public = Some(other.public_key().clone());
        let error = Pkcs11Key::open(&uri(folder, "object=rsa"), public, DEADLINE).unwrap_err();
        assert_eq!(error, Pkcs11Error::WrongKey);
    });
}

#[test]
fn server_signs_with_keys_of_a_token() {
    with_token("server_signs_with_keys_of_a_token", |folder| {
        let pki = Pki::new();
        let keys = ["object=rsa", "object=p256"].map(|key| open(folder, key).unwrap());
        let keys = keys.map(|key| Arc::new(key) as Arc<dyn KeySource>);
        let server = pki.server(&keys);
        let client = pki.client(server.addresses());
        for (key, scheme) in keys.iter().zip([PSS, P256]) {
            let remote = RemoteKey::new(client.clone(), key.public_key().clone());
            assert_eq!(sign(&remote, scheme), Ok(()));
        }
        assert_eq!(server.shutdown(Duration::from_secs(10)), 0);
    });
}
