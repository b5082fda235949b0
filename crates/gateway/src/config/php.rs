//! Routes that a PHP application answers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::content_type::{ContentType, FileExtension};
use super::proxy::Proxy;
use super::upstream::{Upstream, UpstreamProtocol};
use super::values::{Size, string_type};

/// A folder of PHP scripts that PHP-FPM runs; the folder's other files are served as they are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Php {
    /// Folder of the scripts and files.
    pub root: PathBuf,
    /// Address of PHP-FPM, such as `unix:/run/php/php-fpm.sock` or `fastcgi://127.0.0.1:9000`; or
    /// the name of one of `[upstreams]` with `protocol = "fastcgi"`; or a table with the same keys.
    pub server: Proxy,
    /// Scripts and files that are tried in order when a folder is requested.
    #[serde(default = "index")]
    pub index: Vec<String>,
    /// Script of the folder to run when neither a script nor a file of the requested name exists;
    /// `""` for none.
    #[serde(default = "fallback")]
    pub fallback: String,
    /// Path of the folder as PHP-FPM sees it, if different, such as in a container.
    pub script_root: Option<PathBuf>,
    /// Variables for `$_SERVER`, in addition to those of the request or replacing them; `PHP_VALUE`
    /// and `PHP_ADMIN_VALUE` override settings of `php.ini`.
    #[serde(default)]
    pub variables: BTreeMap<VariableName, String>,
    /// Request bodies up to this size are buffered before PHP-FPM gets the request, so that slow
    /// clients occupy none of its processes. Larger bodies are streamed, or written to disk up to
    /// `collect_on_disk` if their length is unknown, since FastCGI scripts need the length first.
    /// All requests of the route together may buffer 64 times this size; beyond that, bodies are
    /// handled like larger ones.
    #[serde(default = "DEFAULT_COLLECT")]
    #[schemars(default = "written_collect")]
    pub collect: Size,
    /// Request bodies of unknown length that are larger than `collect` are first written completely
    /// to an unnamed file in the folder of `[server] buffering`, up to this size; larger ones are
    /// answered 411. Together with buffered responses they share `buffering.disk` of `[server]`;
    /// beyond that the answer is 503.
    #[serde(default = "DEFAULT_COLLECT_ON_DISK")]
    #[schemars(default = "written_collect_on_disk")]
    pub collect_on_disk: Size,
    /// Whether precompressed files (`.br`, `.zst`, `.gz`) are served in place of the files without
    /// that suffix, to clients that accept the encoding.
    #[serde(default)]
    pub precompressed: bool,
    /// Whether to follow symbolic links that lead outside of the folder. Links within it are
    /// followed, unless they lead to a name that begins with a dot.
    #[serde(default)]
    pub links_outside: bool,
    /// Content types by file extension, without the dot, such as `{ glsl = "text/plain;
    /// charset=utf-8" }`. They override the built-in types.
    #[serde(default)]
    pub types: BTreeMap<FileExtension, ContentType>,
}

/// Default of `collect`.
pub(crate) const DEFAULT_COLLECT: fn() -> Size = || Size(1 << 20);

/// Default of `collect_on_disk`.
pub(crate) const DEFAULT_COLLECT_ON_DISK: fn() -> Size = || Size(1 << 30);

fn written_collect_on_disk() -> &'static str {
    "1GiB"
}

fn written_collect() -> &'static str {
    "1MiB"
}

fn index() -> Vec<String> {
    vec!["index.php".to_owned(), "index.html".to_owned()]
}

fn fallback() -> String {
    "index.php".to_owned()
}

impl Php {
    /// Returns the upstream that runs the scripts.
    /// `upstreams`: the table `[upstreams]`.
    pub(crate) fn upstream<'a>(
        &'a self,
        upstreams: &'a BTreeMap<String, Upstream>,
    ) -> Option<Cow<'a, Upstream>> {
        match &self.server {
            Proxy::Named(name) => upstreams.get(name).map(Cow::Borrowed),
            Proxy::Own(own) if own.protocol == UpstreamProtocol::Auto => {
                Some(Cow::Owned(Upstream {
                    protocol: UpstreamProtocol::FastCgi,
                    ..(**own).clone()
                }))
            }
            Proxy::Own(own) => Some(Cow::Borrowed(own)),
        }
    }
}

/// The name of a variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VariableName(pub String);

impl FromStr for VariableName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !text.is_empty();
        let is_name = is_name && !text.starts_with(|first: char| first.is_ascii_digit());
        is_name.then(|| Self(text.to_owned())).ok_or_else(|| {
            format!("invalid variable name {text:?}: use letters, digits and _, as in APP_ENV")
        })
    }
}
string_type!(VariableName, "variable_name", "The name of a variable.", "APP_ENV");
