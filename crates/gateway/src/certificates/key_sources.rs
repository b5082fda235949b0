//! Private keys that are not just a file: on other machines, in security modules, or in several
//! places that are tried in order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_fleet::signer::{
    KeyChain, KeyEvent, KeySource, LocalKey, LocalKeyError, Pkcs11Key, Pkcs11Uri, PublicKey,
    RemoteKey, SignerClient, SignerConfig, client_tls,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;

use super::key_log::KeyLog;
use crate::config::{Fault, FleetSigner, KeyLocation, signature_timeout};

/// What a configuration uses of keys elsewhere. A reload reuses what has not changed.
#[derive(Clone, Default)]
pub(crate) struct KeySources {
    signers: BTreeMap<String, SignerEntry>,
    modules: Vec<ModuleEntry>,
    chains: Vec<ChainEntry>,
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

/// The key of a certificate.
#[derive(Clone)]
struct ChainEntry {
    /// The certificate's file.
    cert: PathBuf,
    places: Vec<Place>,
    chain: KeyChain,
}

impl ChainEntry {
    fn is_of(&self, cert: &Path, public: &PublicKey, places: &[Place]) -> bool {
        self.cert == cert
            && self.chain.public_key() == public
            && self.places.len() == places.len()
            && self.places.iter().zip(places).all(|(one, other)| one.is(other))
    }
}

/// Where a key is.
#[derive(Clone)]
enum Place {
    Signer(Arc<SignerClient>),
    Module(Arc<dyn KeySource>),
    File(PathBuf),
}

impl Place {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Signer(one), Self::Signer(other)) => Arc::ptr_eq(one, other),
            (Self::Module(one), Self::Module(other)) => {
                std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
            }
            (Self::File(one), Self::File(other)) => one == other,
            _ => false,
        }
    }

    fn source(&self, public: &PublicKey) -> Result<Arc<dyn KeySource>, KeyProblem> {
        const HINT: &str = "name a file with the private key in PEM form";

        match self {
            Self::Signer(client) => Ok(Arc::new(RemoteKey::new(client.clone(), public.clone()))),
            Self::Module(key) => Ok(key.clone()),
            Self::File(file) => match LocalKey::from_file(file) {
                Ok(key) => Ok(Arc::new(key)),
                Err(LocalKeyError::File(error)) => Err(unreadable(file, &error, HINT)),
                Err(error) => Err(problem(&format_args!("{}: {error}", file.display()), HINT)),
            },
        }
    }
}

/// Why a key cannot be used: a message, and what to do.
pub(crate) struct KeyProblem {
    pub(crate) message: String,
    pub(crate) hint: Cow<'static, str>,
    pub(crate) fault: Fault,
}

fn problem(message: &dyn fmt::Display, hint: impl Into<Cow<'static, str>>) -> KeyProblem {
    KeyProblem { message: message.to_string(), hint: hint.into(), fault: Fault::Malformed }
}

fn unreadable(file: &Path, error: &io::Error, hint: &'static str) -> KeyProblem {
    let message = format!("{}: {error}", file.display());
    KeyProblem { message, hint: hint.into(), fault: Fault::from(error) }
}

impl KeySources {
    /// Returns the state of each certificate's key: the certificate's file, and the sources.
    pub(crate) fn chains(&self) -> impl Iterator<Item = (&Path, &KeyChain)> {
        self.chains.iter().map(|entry| (&*entry.cert, &entry.chain))
    }

    /// Connects to all signers.
    pub(crate) fn connect(&self) {
        self.signers.values().for_each(|signer| signer.client.connect());
    }

    /// Adds a signer, with the connections of `before` if its settings are the same.
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
        let tls = client_tls(cert, key, trust).map_err(|error| {
            let fault = error.kind.map(|kind| Fault::from(&kind.into()));
            KeyProblem { fault: fault.unwrap_or(Fault::Malformed), ..problem(&error, HINT) }
        })?;
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
            Some(error) => {
                // Some errors name the address themselves.
                let error = error.strip_prefix(&format!("{address}: ")).unwrap_or(error);
                log.line(&format!("warning: signer {label}: {address}: {error}"));
            }
            None => log.line(&format!("signer {label}: connected to {address}")),
        });
        let client = SignerClient::idle(&config).map_err(|message| {
            problem(&message, "correct `addresses` or `server_name` of the signer")
        })?;
        let entry = SignerEntry { settings: settings.clone(), files, client };
        self.signers.insert(name.to_owned(), entry);
        Ok(())
    }

    /// Returns a certificate whose key is in one of several places, and whether it may take time to
    /// sign; `None` if one of its signers cannot be used, which is a problem of its own.
    ///
    /// What has the same key in the same places as before keeps its counts.
    pub(crate) fn certified(
        &mut self,
        cert: &Path,
        keys: &[KeyLocation],
        path: impl Fn(&Path) -> PathBuf,
        before: Option<&Self>,
        log: &Arc<KeyLog>,
    ) -> Result<Option<(Arc<CertifiedKey>, bool)>, KeyProblem> {
        const CERT: &str = "name a file with the certificate chain in PEM form as `cert`";

        let named = |error: &dyn fmt::Display| format!("{}: {error}", cert.display());
        let pem = std::fs::read(cert).map_err(|error| unreadable(cert, &error, CERT))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|error| problem(&named(&error), CERT))?;
        let leaf = chain
            .first()
            .ok_or_else(|| problem(&named(&"contains no certificate in PEM form"), CERT))?;
        let public =
            PublicKey::of_certificate(leaf).map_err(|error| problem(&named(&error), CERT))?;
        let mut places = Vec::new();
        for key in keys {
            let Some(place) = self.place(key, &public, &path, before)? else { return Ok(None) };
            places.push(place);
        }
        let sources: Result<_, _> = places.iter().map(|place| place.source(&public)).collect();
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
        let new = KeyChain::new(public.clone(), sources?, listener).map_err(|source| {
            problem(
                &format_args!("{source}: the key does not belong to {}", cert.display()),
                "list only keys of this certificate in `keys`",
            )
        })?;
        let before = before.iter().flat_map(|before| &before.chains);
        let known =
            self.chains.iter().chain(before).find(|entry| entry.is_of(cert, &public, &places));
        let chained = known.map_or(new, |known| known.chain.clone());
        if !self.chains.iter().any(|entry| entry.is_of(cert, &public, &places)) {
            let chain = chained.clone();
            self.chains.push(ChainEntry { cert: cert.to_owned(), places, chain });
        }
        let is_slow = chained.may_block();
        Ok(Some((Arc::new(CertifiedKey::new(chain, Arc::new(chained))), is_slow)))
    }

    /// Returns where a key is; `None` for a signer that cannot be used.
    fn place(
        &mut self,
        key: &KeyLocation,
        public: &PublicKey,
        path: impl Fn(&Path) -> PathBuf,
        before: Option<&Self>,
    ) -> Result<Option<Place>, KeyProblem> {
        match key {
            KeyLocation::Signer(name) => {
                Ok(self.signers.get(name).map(|signer| Place::Signer(signer.client.clone())))
            }
            KeyLocation::File(file) => Ok(Some(Place::File(path(file)))),
            KeyLocation::Pkcs11(uri) => {
                let uri = uri.in_folder(&path(Path::new("")));
                self.module(uri, public, before).map(|key| Some(Place::Module(key)))
            }
        }
    }

    fn module(
        &mut self,
        uri: Pkcs11Uri,
        public: &PublicKey,
        before: Option<&Self>,
    ) -> Result<Arc<dyn KeySource>, KeyProblem> {
        let is_same = |entry: &&ModuleEntry| entry.uri == uri && entry.public == *public;
        if let Some(known) = self.modules.iter().find(is_same) {
            return Ok(known.key.clone());
        }
        let known = before.and_then(|before| before.modules.iter().find(is_same));
        let entry = if let Some(known) = known {
            known.clone()
        } else {
            let timeout = signature_timeout().0;
            let key = Pkcs11Key::open(&uri, Some(public.clone()), timeout)
                .map_err(|error| problem(&format_args!("{uri}: {error}"), error.hint()))?;
            ModuleEntry { uri, public: public.clone(), key: Arc::new(key) }
        };
        let key = entry.key.clone();
        self.modules.push(entry);
        Ok(key)
    }
}
