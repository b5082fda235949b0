//! Private keys that are not just a file: on other machines, in security modules, or in several
//! places that are tried in order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_fleet::signer::{
    KeyChain, KeyEvent, KeySource, LocalKey, Pkcs11Key, Pkcs11Uri, PublicKey, RemoteKey,
    SignerClient, SignerConfig, client_tls,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;

use super::key_log::KeyLog;
use crate::config::{FleetSigner, KeyLocation, signature_timeout};

/// What a configuration uses of keys elsewhere. A reload reuses what has not changed.
#[derive(Clone, Default)]
pub(crate) struct KeySources {
    signers: BTreeMap<String, SignerEntry>,
    modules: Vec<ModuleEntry>,
    /// Keys of certificates, by the certificate's file.
    chains: Vec<(PathBuf, KeyChain)>,
}

#[derive(Clone)]
struct SignerEntry {
    settings: FleetSigner,
    /// Content of the files of its TLS.
    files: [Vec<u8>; 3],
    client: Arc<SignerClient>,
}

#[derive(Clone)]
struct ModuleEntry {
    uri: Pkcs11Uri,
    public: PublicKey,
    key: Arc<dyn KeySource>,
}

/// Why a key cannot be used: a message, and what to do.
pub(crate) struct KeyProblem {
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

fn problem(message: impl ToString, hint: &'static str) -> KeyProblem {
    KeyProblem { message: message.to_string(), hint }
}

impl KeySources {
    /// Returns the state of each certificate's key: the certificate's file, and the sources.
    pub(crate) fn chains(&self) -> &[(PathBuf, KeyChain)] {
        &self.chains
    }

    /// Connects to a signer, unless `before` is connected to it in the same way.
    pub(crate) fn add_signer(
        &mut self,
        name: &str,
        settings: &FleetSigner,
        path: impl Fn(&Path) -> PathBuf,
        before: Option<&Self>,
        log: &Arc<KeyLog>,
    ) -> Result<(), KeyProblem> {
        const HINT: &str = "name PEM files as `cert`, `key` and `trust` of the signer";

        let paths = [&settings.cert, &settings.key, &settings.trust].map(|file| path(file));
        let [cert, key, trust] = &paths;
        let tls = client_tls(cert, key, trust).map_err(|error| problem(error, HINT))?;
        let read = |path: &PathBuf| std::fs::read(path).unwrap_or_default();
        let files = paths.each_ref().map(read);
        let known = before.and_then(|before| before.signers.get(name));
        if let Some(known) = known
            && known.settings == *settings
            && known.files == files
        {
            self.signers.insert(name.to_owned(), known.clone());
            return Ok(());
        }
        let mut config = SignerConfig::new(name, settings.addresses.clone(), tls);
        config.server_name.clone_from(&settings.server_name);
        config.timeout = settings.timeout.0;
        let (log, label) = (log.clone(), name.to_owned());
        config.listener = Arc::new(move |address, error| match error {
            Some(error) => log.line(&format!("warning: signer {label}: {address}: {error}")),
            None => log.line(&format!("signer {label}: connected to {address}")),
        });
        let client = SignerClient::start(&config)
            .map_err(|message| problem(message, "correct `addresses` of the signer"))?;
        let entry = SignerEntry { settings: settings.clone(), files, client };
        self.signers.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Returns a certificate whose key is in one of several places, and whether it may take time to
    /// sign.
    pub(crate) fn certified(
        &mut self,
        cert: &Path,
        keys: &[KeyLocation],
        path: impl Fn(&Path) -> PathBuf,
        before: Option<&Self>,
        log: &Arc<KeyLog>,
    ) -> Result<(Arc<CertifiedKey>, bool), KeyProblem> {
        const CERT: &str = "name a file with the certificate chain in PEM form as `cert`";

        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", cert.display());
        let chain: Vec<_> = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(|error| problem(named(&error), CERT))?;
        let leaf = chain
            .first()
            .ok_or_else(|| problem(named(&"contains no certificate in PEM form"), CERT))?;
        let public =
            PublicKey::of_certificate(leaf).map_err(|error| problem(named(&error), CERT))?;
        let mut sources = Vec::new();
        for key in keys {
            sources.push(self.source(key, &public, &path, before)?);
        }
        let log = log.clone();
        let label = cert.display().to_string();
        let listener = move |event: KeyEvent<'_>| match event {
            KeyEvent::Failed { source, error } => {
                log.line(&format!("warning: key of {label}: {source}: {error}"));
            }
            KeyEvent::Recovered { source } => {
                log.line(&format!("key of {label}: {source} signs again"));
            }
        };
        let chained = KeyChain::new(public, sources, listener).map_err(|source| {
            problem(
                format_args!("{source}: the key does not belong to {}", cert.display()),
                "list only keys of this certificate in `keys`",
            )
        })?;
        let is_slow = chained.may_block();
        self.chains.push((cert.to_owned(), chained.clone()));
        Ok((Arc::new(CertifiedKey::new(chain, Arc::new(chained))), is_slow))
    }

    fn source(
        &mut self,
        key: &KeyLocation,
        public: &PublicKey,
        path: impl Fn(&Path) -> PathBuf,
        before: Option<&Self>,
    ) -> Result<Arc<dyn KeySource>, KeyProblem> {
        match key {
            KeyLocation::Signer(name) => {
                let signer = self.signers.get(name).ok_or_else(|| {
                    problem(
                        format_args!("signer {name:?} cannot be used"),
                        "correct its table in [fleet.signers]",
                    )
                })?;
                Ok(Arc::new(RemoteKey::new(signer.client.clone(), public.clone())))
            }
            KeyLocation::File(file) => {
                let key = LocalKey::from_file(&path(file));
                let key = key.map_err(|error| {
                    problem(error, "name a file with the private key in PEM form")
                })?;
                Ok(Arc::new(key))
            }
            KeyLocation::Pkcs11(uri) => {
                let uri = uri.in_folder(&path(Path::new("")));
                let is_same = |entry: &&ModuleEntry| entry.uri == uri && entry.public == *public;
                if let Some(known) = self.modules.iter().find(is_same) {
                    return Ok(known.key.clone());
                }
                let known = before.and_then(|before| before.modules.iter().find(is_same));
                let entry = if let Some(known) = known {
                    known.clone()
                } else {
                    let timeout = signature_timeout().0;
                    let key = Pkcs11Key::open(&uri, Some(public.clone()), timeout);
                    let key = key.map_err(|error| {
                        problem(
                            error,
                            "check the module, the token, its PIN and the name of the key in the \
                                PKCS #11 URI",
                        )
                    })?;
                    ModuleEntry { uri, public: public.clone(), key: Arc::new(key) }
                };
                let key = entry.key.clone();
                self.modules.push(entry);
                Ok(key)
            }
        }
    }
}
