//! Cloudflare's gokeyless, if `GOKEYLESS` names a folder with its programs `gokeyless` and
//! `gokeyless-cli-tester`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pronghorn_fleet::signer::protocol::ErrorCode;
use pronghorn_fleet::signer::{Hash, KeySource, Phase, RemoteKey, Scheme, SignError};

use super::support::{Pki, await_phase, loopback, sign};

fn programs() -> Option<PathBuf> {
    let folder = std::env::var_os("GOKEYLESS");
    if folder.is_none() {
        eprintln!("skipped: GOKEYLESS does not name the folder of its programs");
    }
    folder.map(PathBuf::from)
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a port that was free. The program cannot choose one itself.
fn free_port() -> u16 {
    TcpListener::bind(loopback()).unwrap().local_addr().unwrap().port()
}

fn run(programs: &Path, pki: &Pki, keys: &Path, port: u16) -> Running {
    let config = pki.path("gokeyless.yaml");
    let text = format!(
        "loglevel: 2\nhostname: localhost\nport: {port}\nmetrics_port: {}\nauth_cert: {}\n\
            auth_key: {}\nauth_csr: {}\ncloudflare_ca_cert: {}\nprivate_key_stores:\n- dir: {}\n",
        free_port(),
        pki.path("server.pem").display(),
        pki.path("server.key").display(),
        pki.path("server.csr").display(),
        pki.path("ca.pem").display(),
        keys.display(),
    );
    std::fs::write(&config, text).unwrap();
    let child = Command::new(programs.join("gokeyless"))
        .arg("--config-file")
        .arg(&config)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Running(child)
}

#[test]
fn our_client_uses_the_server_of_gokeyless() {
    let Some(programs) = programs() else { return };
    let pki = Pki::new();
    let sites = [
        pki.site("rsa", &rcgen::PKCS_RSA_SHA256),
        pki.site("p256", &rcgen::PKCS_ECDSA_P256_SHA256),
        pki.site("p384", &rcgen::PKCS_ECDSA_P384_SHA384),
    ];
    let keys = pki.path("keys");
    std::fs::create_dir(&keys).unwrap();
    for name in ["rsa", "p256", "p384"] {
        let file = format!("{name}.key");
        std::fs::copy(pki.path(&file), keys.join(file)).unwrap();
    }
    let port = free_port();
    let _server = run(&programs, &pki, &keys, port);
    let client = pki.client(&[format!("127.0.0.1:{port}").parse().unwrap()]);
    await_phase(&client, Phase::Connected);
    for (_, key) in &sites {
        let remote = RemoteKey::new(client.clone(), key.public_key().clone());
        for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
            for scheme in [Scheme::RsaPkcs1(hash), Scheme::RsaPss(hash), Scheme::Ecdsa(hash)] {
                if key.public_key().kind().supports(scheme) {
                    assert_eq!(sign(&remote, scheme), Ok(()), "{scheme:?}");
                }
            }
        }
        let scheme = Scheme::of_tls(key.public_key().kind().tls_schemes()[0]).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| (0..20).for_each(|_| sign(&remote, scheme).unwrap()));
            }
        });
    }
    let (_, unknown) = pki.site("unknown", &rcgen::PKCS_ECDSA_P256_SHA256);
    let remote = RemoteKey::new(client.clone(), unknown.public_key().clone());
    let refused = SignError::Refused(ErrorCode::KEY_NOT_FOUND);
    assert_eq!(sign(&remote, Scheme::Ecdsa(Hash::Sha256)), Err(refused));
    assert_eq!(client.addresses()[0].connections, 1);
}

/// Its tester signs with MD5, SHA-1 and SHA-224 too, which our server refuses.
#[test]
fn the_client_of_gokeyless_uses_our_server() {
    let Some(programs) = programs() else { return };
    let pki = Pki::new();
    let certificates = pki.path("certificates");
    std::fs::create_dir(&certificates).unwrap();
    let keys: Vec<_> = [
        ("rsa", &rcgen::PKCS_RSA_SHA256),
        ("p256", &rcgen::PKCS_ECDSA_P256_SHA256),
        ("p384", &rcgen::PKCS_ECDSA_P384_SHA384),
    ]
    .into_iter()
    .map(|(name, algorithm)| {
        let (_, key) = pki.site(name, algorithm);
        let certificate = certificates.join(format!("{name}.crt"));
        std::fs::copy(pki.path(&format!("{name}.pem")), certificate).unwrap();
        key as std::sync::Arc<dyn KeySource>
    })
    .collect();
    let server = pki.server(&keys);
    let output = Command::new(programs.join("gokeyless-cli-tester"))
        .args(["-loglevel", "1", "-testlen", "3s", "-benchmark", "-repeats", "5", "-workers", "4"])
        .arg("-keyserver")
        .arg(format!("localhost:{}", server.addresses()[0].port()))
        .args(["-cert".as_ref(), pki.path("gateway.pem").as_os_str()])
        .args(["-key".as_ref(), pki.path("gateway.key").as_os_str()])
        .args(["-ca-file".as_ref(), pki.path("ca.pem").as_os_str()])
        .args(["-cert-directory".as_ref(), certificates.as_os_str()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let passed = |name: &str| {
        text.lines().any(|line| line.contains("PASS") && line.contains(name))
            && !text.lines().any(|line| line.contains("FAIL") && line.contains(name))
    };
    let refused = |name: &str| {
        text.lines().any(|line| line.contains("FAIL") && line.contains(name))
            && !text.lines().any(|line| line.contains("PASS") && line.contains(name))
    };
    assert!(passed("ping"), "{text}");
    for key in &keys {
        let ski = key.public_key().ski();
        for hash in ["sha256", "sha384", "sha512"] {
            assert!(passed(&format!("{ski}.sign.{hash}")), "{hash}: {text}");
        }
        for hash in ["md5sha1", "sha1", "sha224"] {
            assert!(refused(&format!("{ski}.sign.{hash}")), "{hash}: {text}");
        }
    }
}
