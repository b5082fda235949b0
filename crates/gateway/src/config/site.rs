//! Sites, and what they do with requests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::content_type::{ContentType, NameEnd};
use super::either::{Short, either};
use super::layer::Layer;
use super::matches::Match;
use super::patterns::HostPattern;
use super::php::Php;
use super::response::{ErrorPages, Rewrite};
use super::source::Place;
use super::upgrades::Upgrades;
use super::upstream::Upstream;
use super::values::choice;

/// One of `[[sites]]`: what is served under some host names.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Site {
    /// The names that it is for. A name alone goes before one with a star, and that before `*`, which takes what no other site has.
    #[schemars(length(min = 1))]
    pub hosts: Vec<HostPattern>,
    /// Its certificate. Without one it is served in clear text only.
    pub tls: Option<Tls>,
    /// Whether HTTP/3 is served here; if it is left out, what `[server]` says.
    pub http3: Option<bool>,
    /// What requests in clear text get, for a site that has a certificate.
    #[serde(default)]
    pub clear_text: ClearText,
    /// Fields of the responses of all routes.
    #[serde(default)]
    pub response_headers: HeaderRules,
    /// Files in place of the texts of errors, for all routes.
    #[serde(default)]
    pub errors: ErrorPages,
    /// Whether errors of upstreams get these pages too.
    #[serde(default)]
    pub errors_of_upstreams: bool,
    /// What requests of all routes go through, before the layers of their route.
    #[serde(default)]
    pub layers: Vec<Layer>,
    /// What is done with requests: the first route that matches answers.
    #[serde(default)]
    pub routes: Vec<Route>,
    #[serde(skip)]
    pub(crate) place: Place,
}

choice! {
    /// What requests in clear text get.
    #[derive(Default)]
    ClearText: "treatment of clear text" {
        /// A redirect to the same target over HTTPS.
        #[default]
        Redirect = "redirect",
        /// The same as over HTTPS.
        Serve = "serve",
        /// 421: the site is not there.
        Refuse = "refuse",
    }
}

/// The certificate of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Chain and key in files.
    Files(CertificateFiles),
    /// One for development, which the server makes itself.
    Development,
    /// One for each host, which the server orders as `[acme]` says.
    Acme,
}

/// Chain and key in PEM form.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The file with the chain, the server's own certificate first.
    pub cert: PathBuf,
    /// The file with the private key.
    pub key: PathBuf,
    /// Asks clients for a certificate of their own (mutual TLS).
    pub client: Option<ClientAuth>,
}

/// Which certificates of clients are good.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct ClientAuth {
    /// The file with the certificates of those who may vouch for clients, in PEM form.
    pub ca: PathBuf,
    /// What is done with clients that show none.
    #[serde(default)]
    pub mode: ClientAuthMode,
}

choice! {
    /// What is done with clients that show no certificate.
    #[derive(Default)]
    ClientAuthMode: "treatment of clients without a certificate" {
        /// They are refused: 403.
        #[default]
        Required = "required",
        /// They are served; upstreams see that there is none.
        Optional = "optional",
    }
}

impl Short for Tls {
    type Table = CertificateFiles;

    const EXPECTED: &'static str = "{ cert = \"chain.pem\", key = \"key.pem\" }, \"acme\", or \"development\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "development" => Ok(Self::Development),
            "acme" => Ok(Self::Acme),
            _ => Err(format!("{text:?} is no kind of certificate: write {}", Self::EXPECTED)),
        }
    }

    fn from_table(table: CertificateFiles) -> Self {
        Self::Files(table)
    }
}
either!(Tls, "tls", "development");

/// One of `[[sites.routes]]`: which requests, and what is done with them.
///
/// Exactly one of `files`, `proxy`, `php`, `redirect` and `respond` says what answers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Route {
    /// Which requests are meant: a path, a table, or a list of these, of which one has to be true; all, if it is left out.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// Serves the files of a folder.
    pub files: Option<Files>,
    /// Asks other servers: the name of one of `[upstreams]`, the address of a server, or a table as there.
    pub proxy: Option<Proxy>,
    /// Has PHP-FPM run scripts of a folder, and serves its other files.
    pub php: Option<Php>,
    /// Sends the client elsewhere.
    pub redirect: Option<Redirect>,
    /// Answers at once.
    pub respond: Option<Respond>,
    /// Takes away what stands before the first star of the path that matched. Servers are told of it in `x-forwarded-prefix`.
    #[serde(default)]
    pub strip_prefix: bool,
    /// Whether paths with an encoded slash (`%2F`) or a backslash (`%5C`) are taken, or answered 400. By default they are taken where an
    /// application's front controller reads the address, as with `php`, and with `files` that have a `fallback`.
    pub paths: Option<Paths>,
    /// Fields of requests that whatever answers gets although they are otherwise dropped: names with other characters than letters, digits and
    /// dashes (`user_id`), those that name another target or method (`x-original-url`, `x-http-method-override`), and, of proxies in
    /// `trusted_proxies` alone, those that name a user or a certificate (`remote-user`).
    #[serde(default)]
    #[schemars(example = ["user_id"])]
    pub keep_fields: Vec<FieldName>,
    /// Which other protocols requests may go on in, for a route with `proxy`, and how many of them.
    #[serde(default)]
    pub upgrades: Option<Upgrades>,
    /// Fields of the request as whatever answers gets it.
    #[serde(default)]
    pub request_headers: HeaderRules,
    /// Fields of the response.
    #[serde(default)]
    pub response_headers: HeaderRules,
    /// Files in place of the texts of errors; before those of the site.
    #[serde(default)]
    pub errors: ErrorPages,
    /// Whether errors of upstreams get these pages too.
    #[serde(default)]
    pub errors_of_upstreams: bool,
    /// Another target for the request, after `strip_prefix`: `{path}` stands for the path. The query stays if none stands here.
    pub rewrite: Option<Rewrite>,
    /// Values of `link` that are sent as 103 (Early Hints) to who asks for a page over HTTP/2 and 3, at once or when the layers have let the
    /// request through, and with its response.
    #[serde(default)]
    #[schemars(example = ["</style.css>; rel=preload; as=style"])]
    pub early_hints: Vec<FieldValue>,
    /// The `cache-control` of responses that have none, and are no errors.
    pub cache_control: Option<FieldValue>,
    /// What requests go through on their way to what answers, the first layer first, and responses on their way back.
    #[serde(default)]
    pub layers: Vec<Layer>,
    #[serde(skip)]
    pub(crate) place: Place,
}

impl Route {
    /// Which paths it takes.
    pub(crate) fn paths(&self) -> Paths {
        let has_php = self.php.as_ref().is_some_and(|php| !php.fallback.is_empty());
        let has_page = self.files.as_ref().is_some_and(|Files(files)| files.fallback.is_some());
        self.paths.unwrap_or(if has_php || has_page { Paths::Compatible } else { Paths::Strict })
    }
}

choice! {
    /// Which paths a route takes.
    Paths: "treatment of paths" {
        /// Those without an encoded slash (`%2F`) or a backslash (`%5C`): 400 for others.
        Strict = "strict",
        /// Those too, as they are, if no route but this one is for them with these decoded: otherwise 400.
        Compatible = "compatible",
    }
}

/// A method of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method(pub http::Method);

impl std::str::FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let method = http::Method::from_bytes(text.as_bytes()).ok().filter(|_| text.bytes().all(|b| !b.is_ascii_lowercase()));
        method.map(Self).ok_or_else(|| format!("{text:?} is no method: methods are written in capitals, such as GET"))
    }
}
super::values::written!(Method, "method", "A method of HTTP, in capitals.", "GET");

/// The name of a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldName(String);

impl FieldName {
    pub(crate) fn name(&self) -> http::HeaderName {
        http::HeaderName::from_bytes(self.0.as_bytes()).expect("invariant: it was parsed")
    }
}

impl std::str::FromStr for FieldName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        http::HeaderName::from_bytes(text.as_bytes())
            .map(|name| Self(name.as_str().to_owned()))
            .map_err(|_| format!("{text:?} is no name of a field: letters, digits and dashes, such as cache-control"))
    }
}
super::values::written!(FieldName, "field_name", "The name of a field.", "cache-control");

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldValue(pub http::HeaderValue);

impl std::str::FromStr for FieldValue {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        http::HeaderValue::from_str(text).map(Self).map_err(|_| format!("{text:?} is no value of a field: visible ASCII and spaces"))
    }
}
super::values::written!(FieldValue, "field_value", "The value of a field.", "no-store");

/// Changes of fields, in this order: what is removed, what is set in place of all of its name, what is added.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(default)]
pub struct HeaderRules {
    /// Names of fields that are taken away.
    #[schemars(example = ["server"])]
    pub remove: Vec<FieldName>,
    /// Fields that replace those of their name.
    pub set: BTreeMap<FieldName, FieldValue>,
    /// Fields that come beside those of their name.
    pub add: BTreeMap<FieldName, FieldValue>,
}

/// Files of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(pub FilesTable);

/// Files of a folder.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct FilesTable {
    /// The folder.
    pub root: PathBuf,
    /// The file of the folder that is served where there is none of the name that was asked for, such as `index.html` of a single-page
    /// application.
    pub fallback: Option<String>,
    /// The files that are looked for when a folder is asked for, one after the other.
    #[serde(default = "index")]
    pub index: Vec<String>,
    /// Whether files with `.br`, `.zst` and `.gz` at the end of their names are served for those without it, to clients that take them.
    #[serde(default)]
    pub precompressed: bool,
    /// Whether a folder without an index file is shown as a page with what is in it.
    #[serde(default)]
    pub listing: bool,
    /// Whether files and folders are served whose names begin with a dot, also through links. `.well-known` at the top always is.
    #[serde(default)]
    pub hidden: bool,
    /// Whether symbolic links are followed that lead out of the folder; others are, unless they lead to a hidden name.
    #[serde(default)]
    pub links_outside: bool,
    /// Content types by the ends of names, without the dot, such as `{ glsl = "text/plain; charset=utf-8" }`, in place of those that are known.
    #[serde(default)]
    pub types: BTreeMap<NameEnd, ContentType>,
}

fn index() -> Vec<String> {
    vec!["index.html".to_owned()]
}

impl Short for Files {
    type Table = FilesTable;

    const EXPECTED: &'static str = "a folder such as \"/var/www/site\", or { root = \"/var/www/site\" }";

    fn from_text(text: &str) -> Result<Self, String> {
        let root = text.into();
        let (fallback, index) = (None, index());
        let types = BTreeMap::new();
        Ok(Self(FilesTable { root, fallback, index, precompressed: false, listing: false, hidden: false, links_outside: false, types }))
    }

    fn from_table(table: FilesTable) -> Self {
        Self(table)
    }
}
either!(Files, "files", "/var/www/site");

/// Other servers that are asked: the name of one of `[upstreams]`, the address of a server, or a table as there.
#[derive(Clone, Debug)]
pub enum Proxy {
    /// The upstream of this name.
    Named(String),
    /// This one, of this route alone.
    Own(Box<Upstream>),
}

impl Short for Proxy {
    type Table = Upstream;

    const EXPECTED: &'static str = "the name of an upstream, an address such as \"http://127.0.0.1:3000\", or { servers = […] }";

    fn from_text(text: &str) -> Result<Self, String> {
        // `127.0.0.1:9000`, as others write it, is told how to be written here.
        if text.contains(':') {
            return Ok(Self::Own(Box::new(Upstream::of(text.parse()?))));
        }
        Ok(Self::Named(text.to_owned()))
    }

    fn from_table(table: Upstream) -> Self {
        Self::Own(Box::new(table))
    }
}
either!(Proxy, "proxy", "app", "http://127.0.0.1:3000", "https://app.internal", "unix:/run/app.sock");

/// Sends the client elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect(pub RedirectTable);

/// Sends the client elsewhere.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct RedirectTable {
    /// Where to: a URL or a path. `{path}` stands for the path with its query as it was asked for (after `strip_prefix`), `{host}` for
    /// the host, with the port that was asked for where the URL has the request's scheme and its host ends there.
    #[schemars(example = "https://example.org{path}")]
    pub to: FieldValue,
    /// 301 or 308 for good, 302, 303 or 307 for now.
    #[serde(default = "permanent")]
    pub status: u16,
}

fn permanent() -> u16 {
    308
}

impl Short for Redirect {
    type Table = RedirectTable;

    const EXPECTED: &'static str = "where to, such as \"https://example.org{path}\", or { to = …, status = 302 }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(RedirectTable { to: text.parse()?, status: permanent() }))
    }

    fn from_table(table: RedirectTable) -> Self {
        Self(table)
    }
}
either!(Redirect, "redirect", "https://example.org{path}");

/// An answer that stands in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Respond(pub RespondTable);

/// An answer that stands in the configuration.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct RespondTable {
    /// The status.
    #[serde(deserialize_with = "status")]
    #[schemars(range(min = 200, max = 599), default = "ok")]
    pub status: Option<u16>,
    /// The content, as text.
    pub body: String,
    /// Its type.
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
        other => Err(serde::de::Error::custom(format!("{other} is no status of a final response: 200 to 599"))),
    }
}

impl Short for Respond {
    type Table = RespondTable;

    const EXPECTED: &'static str = "text, or { status = 404, body = \"…\" }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(RespondTable { body: text.to_owned(), ..RespondTable::default() }))
    }

    fn from_table(table: RespondTable) -> Self {
        Self(table)
    }
}
either!(Respond, "respond", "hello");
