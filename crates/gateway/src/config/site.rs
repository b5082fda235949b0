//! Sites and their routes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::content_type::{ContentType, FileExtension};
use super::fleet::KeyLocation;
use super::layer::Layer;
use super::location::Location;
use super::matches::Match;
use super::patterns::HostPattern;
use super::php::Php;
use super::proxy::Proxy;
use super::response::{ErrorPages, Rewrite};
use super::server::EarlyData;
use super::short_form::{ShortForm, short_or_table};
use super::upgrades::Upgrades;
use super::values::{FieldName, FieldValue, string_enum};

/// One of `[[sites]]`: what is served under certain host names.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Site {
    /// Host names of the site. An exact name takes precedence over one with a wildcard, and that
    /// over `*`, which matches all hosts of no other site.
    #[schemars(length(min = 1))]
    pub hosts: Vec<HostPattern>,
    /// Certificate of the site. Without one it is served in clear text only.
    pub tls: Option<Tls>,
    /// Whether to serve HTTP/3; if left out, the setting of `[server]`.
    pub http3: Option<bool>,
    /// Handling of clear-text requests, for a site with a certificate.
    #[serde(default)]
    pub clear_text: ClearText,
    /// Changes to the response header fields of all routes.
    #[serde(default)]
    pub response_headers: HeaderRules,
    /// Files that replace the default error bodies, for all routes.
    #[serde(default)]
    pub errors: ErrorPages,
    /// Whether these pages also replace errors from upstreams.
    #[serde(default)]
    pub errors_of_upstreams: bool,
    /// Layers that requests of all routes pass through, before the layers of their route.
    #[serde(default)]
    pub layers: Vec<Layer>,
    /// Routes of the site: the first one that matches is used.
    #[serde(default)]
    pub routes: Vec<Route>,
    #[serde(skip)]
    pub(crate) location: Location,
}

string_enum! {
    /// Handling of clear-text requests.
    #[derive(Default)]
    ClearText: "treatment of clear text" {
        /// A redirect to the same target over HTTPS.
        #[default]
        Redirect = "redirect",
        /// The same as over HTTPS.
        Serve = "serve",
        /// 421, as if the site did not exist.
        Refuse = "refuse",
    }
}

/// The certificate of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Certificate chain and key in files.
    Files(CertificateFiles),
    /// A development certificate that the server creates itself.
    Development,
    /// A certificate for each host, ordered as `[acme]` specifies.
    Acme,
}

/// Certificate chain and key in PEM form.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct CertificateFiles {
    /// File with the chain, the server's own certificate first.
    pub cert: PathBuf,
    /// File with the private key.
    pub key: Option<PathBuf>,
    /// Where the private key is, in place of `key`: files, `signer:NAME` for one of
    /// `[fleet.signers]`, PKCS #11 URIs for security modules. They are tried in order at each
    /// signature.
    #[serde(default)]
    #[schemars(example = ["signer:vault", "key.pem"])]
    pub keys: Vec<KeyLocation>,
    /// Client certificates to request (mutual TLS).
    pub client: Option<ClientAuth>,
}

/// Verification of client certificates.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct ClientAuth {
    /// PEM file with the CA certificates that may issue client certificates.
    pub ca: PathBuf,
    /// Handling of clients that present no certificate.
    #[serde(default)]
    pub mode: ClientAuthMode,
}

string_enum! {
    /// Handling of clients that present no certificate.
    #[derive(Default)]
    ClientAuthMode: "treatment of clients without a certificate" {
        /// The client is refused: 403.
        #[default]
        Required = "required",
        /// The client is served; upstreams see that it has no certificate.
        Optional = "optional",
    }
}

impl ShortForm for Tls {
    type Table = CertificateFiles;

    const EXPECTED: &'static str =
        "{ cert = \"chain.pem\", key = \"key.pem\" }, \"acme\", or \"development\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "development" => Ok(Self::Development),
            "acme" => Ok(Self::Acme),
            _ => Err(format!("invalid certificate {text:?}: use {}", Self::EXPECTED)),
        }
    }

    fn from_table(table: CertificateFiles) -> Self {
        Self::Files(table)
    }
}
short_or_table!(Tls, "tls", "development");

/// One of `[[sites.routes]]`: which requests it matches, and how they are answered.
///
/// Exactly one of `files`, `proxy`, `php`, `redirect` and `respond` must be set.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Route {
    /// Requests that the route matches: a path, a table, or a list of these, of which one must
    /// match; if left out, all requests.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// Serves the files of a folder.
    pub files: Option<Files>,
    /// Forwards requests to other servers: the name of one of `[upstreams]`, the address of a
    /// server, or a table with the keys of an upstream.
    pub proxy: Option<Proxy>,
    /// Runs the PHP scripts of a folder with PHP-FPM, and serves its other files.
    pub php: Option<Php>,
    /// Redirects the client.
    pub redirect: Option<Redirect>,
    /// Answers with a fixed response.
    pub respond: Option<Respond>,
    /// Whether to strip the part before the first wildcard of the matched path. Upstreams get it in
    /// `x-forwarded-prefix`.
    #[serde(default)]
    pub strip_prefix: bool,
    /// Whether paths with an encoded slash (`%2F`) or a backslash (`%5C`) are accepted, or answered
    /// 400. By default they are accepted if a front controller reads the URL: with `php`, and with
    /// `files` that have a `fallback`.
    pub paths: Option<Paths>,
    /// Request header fields that are kept although they are otherwise dropped: names with
    /// characters other than letters, digits and dashes (`user_id`), names that give another target
    /// or method (`x-original-url`, `x-http-method-override`), and, only from proxies in
    /// `trusted_proxies`, names that give a user or a certificate (`remote-user`).
    #[serde(default)]
    #[schemars(example = ["user_id"])]
    pub keep_fields: Vec<FieldName>,
    /// Handling of requests that arrive before the handshake completes (0-RTT); if left out, the
    /// setting of `[server]`.
    pub early_data: Option<EarlyData>,
    /// Protocols that requests may switch to, for a route with `proxy`, and their limits.
    #[serde(default)]
    pub upgrades: Option<Upgrades>,
    /// Changes to the request header fields. In values, `{client}` stands for the client's address.
    #[serde(default)]
    pub request_headers: HeaderRules,
    /// Changes to the response header fields.
    #[serde(default)]
    pub response_headers: HeaderRules,
    /// Files that replace the default error bodies; they take precedence over those of the site.
    #[serde(default)]
    pub errors: ErrorPages,
    /// Whether these pages also replace errors from upstreams.
    #[serde(default)]
    pub errors_of_upstreams: bool,
    /// New target for the request, applied after `strip_prefix`: `{path}` stands for the path. The
    /// query is kept if the new target has none.
    pub rewrite: Option<Rewrite>,
    /// Values of `link` to send as 103 (Early Hints) for page requests over HTTP/2 and 3, at once
    /// or when the layers have passed the request, and again in the final response.
    #[serde(default)]
    #[schemars(example = ["</style.css>; rel=preload; as=style"])]
    pub early_hints: Vec<FieldValue>,
    /// `cache-control` for responses that have none and are not errors.
    pub cache_control: Option<FieldValue>,
    /// Layers that requests pass through, the first layer first, and responses in reverse order.
    #[serde(default)]
    pub layers: Vec<Layer>,
    #[serde(skip)]
    pub(crate) location: Location,
}

impl Route {
    /// Returns which paths the route accepts.
    pub(crate) fn paths(&self) -> Paths {
        let has_php = self.php.as_ref().is_some_and(|php| !php.fallback.is_empty());
        let has_page = self.files.as_ref().is_some_and(|Files(files)| files.fallback.is_some());
        self.paths.unwrap_or(if has_php || has_page { Paths::Compatible } else { Paths::Strict })
    }
}

string_enum! {
    /// Paths that a route accepts.
    Paths: "treatment of paths" {
        /// Paths without an encoded slash (`%2F`) or a backslash (`%5C`); others are answered 400.
        Strict = "strict",
        /// Such paths too, unchanged, if no other route matches them with these decoded; otherwise
        /// 400.
        Compatible = "compatible",
    }
}

/// Changes to header fields, applied in this order: remove, set, add.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(default)]
pub struct HeaderRules {
    /// Names of fields to remove.
    #[schemars(example = ["server"])]
    pub remove: Vec<FieldName>,
    /// Fields that replace all fields of the same name.
    pub set: BTreeMap<FieldName, FieldValue>,
    /// Fields to add to those of the same name.
    pub add: BTreeMap<FieldName, FieldValue>,
}

/// Static files of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(pub FilesTable);

/// Static files of a folder.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct FilesTable {
    /// Path of the folder.
    pub root: PathBuf,
    /// File of the folder to serve when none of the requested name exists, such as `index.html` of
    /// a single-page application.
    pub fallback: Option<String>,
    /// Files that are tried in order when a folder is requested.
    #[serde(default = "index")]
    pub index: Vec<String>,
    /// Whether precompressed files (`.br`, `.zst`, `.gz`) are served in place of the files without
    /// that suffix, to clients that accept the encoding.
    #[serde(default)]
    pub precompressed: bool,
    /// Whether to show a listing for a folder without an index file.
    #[serde(default)]
    pub listing: bool,
    /// Whether to serve files and folders whose names begin with a dot, also through links.
    /// `.well-known` at the top is always served.
    #[serde(default)]
    pub hidden: bool,
    /// Whether to follow symbolic links that lead outside of the folder. Links within it are
    /// followed, unless they lead to a hidden name.
    #[serde(default)]
    pub links_outside: bool,
    /// Content types by file extension, without the dot, such as `{ glsl = "text/plain;
    /// charset=utf-8" }`. They override the built-in types.
    #[serde(default)]
    pub types: BTreeMap<FileExtension, ContentType>,
}

fn index() -> Vec<String> {
    vec!["index.html".to_owned()]
}

impl ShortForm for Files {
    type Table = FilesTable;

    const EXPECTED: &'static str =
        "a folder such as \"/var/www/site\", or { root = \"/var/www/site\" }";

    fn from_text(text: &str) -> Result<Self, String> {
        let root = text.into();
        let (fallback, index) = (None, index());
        let types = BTreeMap::new();
        Ok(Self(FilesTable {
            root,
            fallback,
            index,
            precompressed: false,
            listing: false,
            hidden: false,
            links_outside: false,
            types,
        }))
    }

    fn from_table(table: FilesTable) -> Self {
        Self(table)
    }
}
short_or_table!(Files, "files", "/var/www/site");

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect(pub RedirectTable);

/// A redirect.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct RedirectTable {
    /// Target of the redirect: a URL or a path. `{path}` stands for the requested path with its
    /// query (after `strip_prefix`), `{host}` for the host, with the requested port if the URL has
    /// the request's scheme and its host ends there.
    #[schemars(example = "https://example.org{path}")]
    pub to: FieldValue,
    /// Status: 301 or 308 (permanent), or 302, 303 or 307 (temporary).
    #[serde(default = "permanent")]
    pub status: u16,
}

fn permanent() -> u16 {
    308
}

impl ShortForm for Redirect {
    type Table = RedirectTable;

    const EXPECTED: &'static str =
        "a target such as \"https://example.org{path}\", or { to = …, status = 302 }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(RedirectTable { to: text.parse()?, status: permanent() }))
    }

    fn from_table(table: RedirectTable) -> Self {
        Self(table)
    }
}
short_or_table!(Redirect, "redirect", "https://example.org{path}");

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond(pub RespondTable);

/// A fixed response.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct RespondTable {
    /// Status of the response.
    #[serde(deserialize_with = "status")]
    #[schemars(range(min = 200, max = 599), default = "ok")]
    pub status: Option<u16>,
    /// Body of the response.
    pub body: String,
    /// Content type of the body.
    #[schemars(default = "plain_text")]
    #[schemars(example = "text/html; charset=utf-8")]
    pub content_type: Option<FieldValue>,
}

fn ok() -> u16 {
    200
}

fn plain_text() -> &'static str {
    "text/plain; charset=utf-8"
}

fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    match u16::deserialize(deserializer)? {
        status @ 200..=599 => Ok(Some(status)),
        other => Err(serde::de::Error::custom(format!(
            "invalid status {other}: must be from 200 to 599"
        ))),
    }
}

impl ShortForm for Respond {
    type Table = RespondTable;

    const EXPECTED: &'static str = "text, or { status = 404, body = \"…\" }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(RespondTable { body: text.to_owned(), ..RespondTable::default() }))
    }

    fn from_table(table: RespondTable) -> Self {
        Self(table)
    }
}
short_or_table!(Respond, "respond", "hello");
