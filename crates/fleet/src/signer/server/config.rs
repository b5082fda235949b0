//! The configuration file of a signer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::clients::{Client, Identity};
use super::keys::Key;
use super::limits::{Limits, Seconds};
use super::problem::{Fault, Problem};
use super::settings::Settings;
use crate::signer::local_key::{LocalKey, LocalKeyError};
use crate::signer::pkcs11::{Pkcs11Error, Pkcs11Key, Pkcs11Uri};
use crate::signer::public_key::PublicKey;
use crate::signer::source::KeySource;
use crate::signer::tls::{self, TlsError};

/// Time that a key in a security module may take for a signature.
const MODULE_TIMEOUT: Duration = Duration::from_secs(5);
/// All keys, in the list of a client's keys.
const ALL: &str = "*";

/// The configuration of a signer, parsed and not yet opened.
#[derive(Debug)]
pub struct Config {
    file: PathBuf,
    text: String,
    parsed: File,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Addresses to listen on.
    listen: Vec<Spanned<SocketAddr>>,
    /// The signer's certificate chain, in PEM form.
    cert: Spanned<PathBuf>,
    /// Its private key, in PEM form.
    key: Spanned<PathBuf>,
    /// The authorities that issue the clients' certificates, in PEM form.
    client_ca: Spanned<PathBuf>,
    /// Threads that sign; by default the number of cores.
    threads: Option<Spanned<usize>>,
    /// Time for requests in flight when the signer ends.
    grace: Option<Seconds>,
    admin: Option<AdminTable>,
    limits: Option<Spanned<Limits>>,
    /// The keys to sign with, by name.
    keys: Spanned<BTreeMap<String, Spanned<KeyTable>>>,
    /// The clients.
    clients: Vec<ClientTable>,
}

/// The table `[admin]`: where metrics are served.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminTable {
    /// `unix:PATH` or a loopback address.
    pub listen: Spanned<String>,
    /// Token that requests must send as `Authorization: Bearer TOKEN`.
    pub token: Option<String>,
}

/// A key: a file or a PKCS#11 URI, with its certificate if the token does not have the public key.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a key is a path, a pkcs11: URI, or { key = …, cert = … }")]
enum KeyTable {
    Short(String),
    Whole(WholeKey),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WholeKey {
    key: String,
    cert: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    /// Common name or DNS name of the certificate's subject.
    name: Option<Spanned<String>>,
    /// SHA-256 fingerprint of the certificate.
    sha256: Option<Spanned<String>>,
    /// Names of keys, or `*`.
    keys: Vec<Spanned<String>>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Returns the first problem.
    pub fn load(file: &Path) -> Result<Self, Problem> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Problem::of_file(file, &error).with_hint("check the path").with_fault(error.kind())
        })?;
        Self::parse(file, text)
    }

    fn parse(file: &Path, text: String) -> Result<Self, Problem> {
        match toml::from_str(&text) {
            Ok(parsed) => Ok(Self { file: file.to_owned(), text, parsed }),
            Err(error) => {
                let message = error.message().lines().next().unwrap_or_default();
                // The span of a missing setting is the whole file.
                let is_of_file =
                    |span: &Range<usize>| span.start == 0 && message.starts_with("missing field");
                Err(match error.span().filter(|span| !is_of_file(span)) {
                    Some(span) => Problem::at(file, &text, &span, message),
                    None => Problem::of_file(file, message),
                }
                .with_hint(hint(message)))
            }
        }
    }

    /// Returns the time for requests in flight when the signer ends.
    pub fn grace(&self) -> Duration {
        self.parsed.grace.map_or(Duration::from_secs(10), |grace| grace.0)
    }

    /// Returns the table `[admin]`.
    pub fn admin(&self) -> Option<&AdminTable> {
        self.parsed.admin.as_ref()
    }

    /// Returns the folder that relative paths begin at: that of the file.
    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// Returns the number of keys and of clients.
    pub fn counts(&self) -> (usize, usize) {
        (self.parsed.keys.get_ref().len(), self.parsed.clients.len())
    }

    /// Returns a problem with a value of the file.
    pub fn problem(&self, span: &Range<usize>, message: impl std::fmt::Display) -> Problem {
        Problem::at(&self.file, &self.text, span, message)
    }

    /// Reads all files that it names, and logs in to the tokens.
    ///
    /// # Errors
    ///
    /// Returns the first problem.
    pub fn open(&self) -> Result<Settings, Problem> {
        self.open_with(|source| source)
    }

    /// Like [`open`](Self::open), with something around each key, such as a limit or a
    /// fault for tests.
    ///
    /// # Errors
    ///
    /// Returns the first problem.
    pub fn open_with(
        &self,
        wrap: impl Fn(Arc<dyn KeySource>) -> Arc<dyn KeySource>,
    ) -> Result<Settings, Problem> {
        let parsed = &self.parsed;
        if parsed.listen.is_empty() {
            return Err(Problem::of_file(&self.file, "`listen` has no address")
                .with_hint("add one, such as listen = [\"0.0.0.0:2407\"]"));
        }
        let keys = self.keys(&wrap)?;
        let clients = self.clients(&keys)?;
        let paths = [&parsed.cert, &parsed.key, &parsed.client_ca];
        let [cert, key, ca] = paths.map(|path| self.folder().join(path.get_ref()));
        let listen = parsed.listen.iter().map(|address| *address.get_ref()).collect();
        let keys = keys.into_values().collect();
        let mut settings = Settings::new(listen, [&cert, &key, &ca], clients, keys)
            .map_err(|error| self.tls_problem(&error))?;
        if let Some(limits) = &parsed.limits {
            if let Some((name, value, min)) = limits.get_ref().too_small() {
                let message = format_args!("`{name}` in [limits] is {value}");
                return Err(self
                    .problem(&limits.span(), message)
                    .with_hint(format_args!("set it to {min} or more")));
            }
            settings.limits = limits.get_ref().clone();
        }
        if let Some(threads) = &parsed.threads {
            settings.threads = *threads.get_ref();
            if !(1..=MAX_THREADS).contains(&settings.threads) {
                let message = format_args!("`threads` is {}", settings.threads);
                return Err(self
                    .problem(&threads.span(), message)
                    .with_hint(format_args!("use 1 to {MAX_THREADS}")));
            }
        }
        Ok(settings)
    }

    fn keys(
        &self,
        wrap: &dyn Fn(Arc<dyn KeySource>) -> Arc<dyn KeySource>,
    ) -> Result<BTreeMap<String, Arc<Key>>, Problem> {
        let table = &self.parsed.keys;
        if table.get_ref().is_empty() {
            return Err(self
                .problem(&table.span(), "[keys] has no key")
                .with_hint("add one, such as www = \"www-key.pem\""));
        }
        let mut keys: BTreeMap<String, Arc<Key>> = BTreeMap::new();
        for (name, key) in table.get_ref() {
            let source = wrap(self.source(name, key)?);
            let public = source.public_key().clone();
            let same = keys.values().find(|other| *other.source().public_key() == public);
            if let Some(same) = same {
                let message = format_args!("{name:?} is the same key as {:?}", same.name());
                return Err(self.problem(&key.span(), message).with_hint("remove one of them"));
            }
            keys.insert(name.clone(), Key::new(name, source));
        }
        Ok(keys)
    }

    fn source(&self, name: &str, table: &Spanned<KeyTable>) -> Result<Arc<dyn KeySource>, Problem> {
        let (key, cert) = match table.get_ref() {
            KeyTable::Short(key) => (key, None),
            KeyTable::Whole(WholeKey { key, cert }) => (key, cert.as_deref()),
        };
        let public = cert.map(|cert| self.public_key(&table.span(), cert)).transpose()?;
        let at =
            |message: String| self.problem(&table.span(), format_args!("key {name:?}: {message}"));
        let source: Arc<dyn KeySource> = if key.starts_with("pkcs11:") {
            let uri: Pkcs11Uri = key
                .parse()
                .map_err(|error: Pkcs11Error| at(error.to_string()).with_hint(error.hint()))?;
            let opened =
                Pkcs11Key::open(&uri.in_folder(self.folder()), public.clone(), MODULE_TIMEOUT);
            Arc::new(opened.map_err(|error| {
                at(error.to_string()).with_hint(error.hint()).with_fault(Fault::Unavailable)
            })?)
        } else {
            let path = self.folder().join(key);
            Arc::new(LocalKey::from_file(&path).map_err(|error| {
                let problem = at(format!("{}: {error}", path.display()));
                match error {
                    LocalKeyError::File(error) => {
                        problem.with_hint("check the path").with_fault(error.kind())
                    }
                    LocalKeyError::Encrypted => problem.with_hint(
                        "write an unencrypted copy (openssl pkey -in KEY -out PLAIN_KEY) that only \
                            the signer's user can read",
                    ),
                    _ => problem.with_hint("name a private key in PEM form"),
                }
            })?)
        };
        if public.is_some_and(|public| public != *source.public_key()) {
            return Err(at("it does not belong to the certificate".to_owned())
                .with_hint("name the certificate of this key as `cert`"));
        }
        Ok(source)
    }

    fn public_key(&self, span: &Range<usize>, cert: &Path) -> Result<PublicKey, Problem> {
        let path = self.folder().join(cert);
        let chain = tls::chain(&path).map_err(|error| self.tls_problem(&error))?;
        PublicKey::of_certificate(&chain[0])
            .map_err(|error| self.problem(span, format_args!("{}: {error}", path.display())))
    }

    fn clients(&self, keys: &BTreeMap<String, Arc<Key>>) -> Result<Vec<Client>, Problem> {
        if self.parsed.clients.is_empty() {
            return Err(Problem::of_file(&self.file, "no client may use the signer")
                .with_hint("add [[clients]] with name = \"…\" and keys = [\"…\"]"));
        }
        self.parsed.clients.iter().map(|client| self.client(client, keys)).collect()
    }

    fn client(
        &self,
        table: &ClientTable,
        keys: &BTreeMap<String, Arc<Key>>,
    ) -> Result<Client, Problem> {
        let identity = match (&table.name, &table.sha256) {
            (Some(name), None) => Identity::Name(name.get_ref().clone()),
            (None, Some(text)) => Identity::of_fingerprint(text.get_ref()).ok_or_else(|| {
                let message = format_args!("invalid fingerprint {:?}", text.get_ref());
                self.problem(&text.span(), message).with_hint(
                    "use the 64 hexadecimal digits of `openssl x509 -fingerprint -sha256`",
                )
            })?,
            (Some(name), Some(_)) => {
                let message = "a client has both `name` and `sha256`";
                return Err(self.problem(&name.span(), message).with_hint("use one of them"));
            }
            (None, None) => {
                return Err(Problem::of_file(&self.file, "a client has neither name nor sha256")
                    .with_hint("add name = \"…\", a name in its certificate"));
            }
        };
        let mut of_client = Vec::new();
        for name in &table.keys {
            match keys.get(name.get_ref()) {
                Some(key) => of_client.push(key.clone()),
                None if name.get_ref() == ALL => of_client.extend(keys.values().cloned()),
                None => {
                    let known = keys.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                    let message = format_args!("unknown key {:?}", name.get_ref());
                    return Err(self
                        .problem(&name.span(), message)
                        .with_hint(format_args!("[keys] has {known}")));
                }
            }
        }
        Ok(Client::new(identity, of_client))
    }

    fn tls_problem(&self, error: &TlsError) -> Problem {
        let parsed = &self.parsed;
        let named = [&parsed.cert, &parsed.key, &parsed.client_ca]
            .into_iter()
            .find(|path| self.folder().join(path.get_ref()) == error.path);
        let problem = match named {
            Some(path) => self.problem(&path.span(), error),
            None => Problem::of_file(&self.file, error),
        };
        match error.kind {
            Some(kind) => problem.with_hint("check the path").with_fault(kind),
            None => problem.with_hint("name files in PEM form that belong together"),
        }
    }
}

/// Maximum number of threads that sign.
const MAX_THREADS: usize = 1024;

/// Returns what to do about an error of the TOML library.
fn hint(message: &str) -> &'static str {
    if message.starts_with("unknown field") {
        "remove it, or correct its name"
    } else if message.starts_with("missing field") {
        "add it; `listen`, `cert`, `key`, `client_ca`, [keys] and [[clients]] are required"
    } else {
        "correct it"
    }
}

#[cfg(test)]
mod tests;
