//! What this server shares with others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use pronghorn_fleet::sessions::Address;
use pronghorn_fleet::signer::{Pkcs11Error, Pkcs11Uri};
use schemars::JsonSchema;
use serde::Deserialize;

use super::admin::Token;
use super::values::{Time, string_type};

/// The table `[fleet]`: what this server shares with others that serve the same sites, so that a
/// client may reach any of them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct Fleet {
    /// Name of this server, a different one on each; if left out, the machine's host name.
    pub node: Option<String>,
    /// Secrets that all servers share: a file with one secret a line (64 hexadecimal digits, or
    /// base64), or `redis` for a key in the Redis of `[fleet.sessions]`. The first secret protects
    /// what is made now; what was made under the others is still accepted. A reload reads them
    /// again.
    pub secrets: Option<SecretsSource>,
    /// TLS sessions shared in Redis or Valkey, so that a client resumes on any server.
    pub sessions: Option<FleetSessions>,
    /// Servers that have private keys and sign with them, by name: `pronghorn signer`, or others
    /// that speak the Keyless SSL protocol. A site uses one as `signer:NAME` in the `keys` of its
    /// `tls`.
    pub signers: BTreeMap<String, FleetSigner>,
}

/// One of `[fleet.signers]`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct FleetSigner {
    /// Addresses, each `host:port`, used in turn. One that fails is skipped for a while.
    #[schemars(length(min = 1), example = ["10.0.0.7:2407"])]
    pub addresses: Vec<String>,
    /// Name that the signer's certificate must have; if left out, the host of the address.
    pub server_name: Option<String>,
    /// PEM file with the certificate chain that this server shows to the signer.
    pub cert: PathBuf,
    /// PEM file with its key.
    pub key: PathBuf,
    /// PEM file with the certificates of the authorities that the signer is verified with.
    pub trust: PathBuf,
    /// Longest time for a signature; then the next of the site's `keys` is tried.
    #[serde(default = "signature_timeout")]
    #[schemars(default = "written_signature_timeout")]
    pub timeout: Time,
}

pub(crate) fn signature_timeout() -> Time {
    Time::seconds(1)
}

fn written_signature_timeout() -> &'static str {
    "1s"
}

/// Where the private key of a certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLocation {
    /// On one of `[fleet.signers]`.
    Signer(String),
    /// In a security module, by its PKCS #11 URI (RFC 7512).
    Pkcs11(Box<Pkcs11Uri>),
    /// In a file.
    File(PathBuf),
}

impl FromStr for KeyLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix("signer:") {
            return Ok(Self::Signer(name.to_owned()));
        }
        if text.starts_with("pkcs11:") {
            let uri = text.parse().map_err(|error: Pkcs11Error| error.to_string())?;
            return Ok(Self::Pkcs11(Box::new(uri)));
        }
        if text.is_empty() {
            Err("no file: name one".to_owned())
        } else {
            Ok(Self::File(text.into()))
        }
    }
}
string_type!(
    KeyLocation,
    "key_location",
    "A PEM file, `signer:NAME` or a PKCS #11 URI.",
    "key.pem",
    "signer:vault",
    "pkcs11:token=edge;object=example.com?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:pin"
);

/// Where the secrets of a fleet are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretsSource {
    /// In the Redis that has the sessions.
    Redis,
    /// In a file.
    File(PathBuf),
}

impl FromStr for SecretsSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "redis" => Ok(Self::Redis),
            "" => Err("no file: name one, or use \"redis\"".to_owned()),
            path => Ok(Self::File(path.into())),
        }
    }
}
string_type!(SecretsSource, "secrets", "A file with secrets, or `redis`.", "fleet.secrets");

/// The table `[fleet.sessions]`.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct FleetSessions {
    /// Addresses of Redis: `redis://host:6379`, `rediss://host` for TLS, `unix:///run/redis.sock`.
    /// The first of several that is a primary is used.
    #[schemars(length(min = 1))]
    pub redis: Vec<RedisAddress>,
    /// Name of the primary that Sentinels watch; `redis` then has the Sentinels' addresses.
    pub sentinel: Option<String>,
    /// Whether `redis` has nodes of a Redis Cluster.
    pub cluster: bool,
    /// User of the Redis servers; if left out, `default`.
    pub user: Option<String>,
    /// Password of the Redis servers.
    #[schemars(with = "Option<String>")]
    pub password: Option<Token>,
    /// PEM file with the certificates of the authorities that `rediss://` servers are verified
    /// with; if left out, the system's.
    pub trust: Option<PathBuf>,
    /// Longest time that a handshake waits for Redis.
    #[schemars(default = "written_timeout")]
    pub timeout: Time,
    /// Number of replicas that must acknowledge that a session was taken before it gives early
    /// data.
    #[schemars(range(max = 100))]
    pub replicas: u32,
    /// Beginning of all keys in Redis.
    pub prefix: String,
}

impl Default for FleetSessions {
    fn default() -> Self {
        Self {
            redis: Vec::new(),
            sentinel: None,
            cluster: false,
            user: None,
            password: None,
            trust: None,
            timeout: Time::milliseconds(20),
            replicas: 0,
            prefix: "pronghorn:session:".to_owned(),
        }
    }
}

fn written_timeout() -> &'static str {
    "20ms"
}

/// Address of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisAddress(pub Address);

impl FromStr for RedisAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse()
            .map(Self)
            .map_err(|error: pronghorn_fleet::sessions::InvalidAddress| error.to_string())
    }
}
string_type!(
    RedisAddress,
    "redis_address",
    "Address of a Redis server.",
    "redis://10.0.0.5:6379",
    "rediss://redis.example.com"
);
