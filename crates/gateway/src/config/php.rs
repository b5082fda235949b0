//! Routes that a PHP application answers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Place;
use super::check::{check_name, check_upstream};
use super::content_type::{ContentType, NameEnd};
use super::load::Config;
use super::problem::Problem;
use super::site::Proxy;
use super::upstream::{Upstream, UpstreamProtocol};
use super::values::{Size, written};
use crate::scripts::is_script;

/// Scripts of PHP in a folder, which PHP-FPM runs, with the other files of the folder, which are served as they are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Php {
    /// The folder.
    pub root: PathBuf,
    /// Where PHP-FPM listens: an address such as `unix:/run/php/php-fpm.sock` or `fastcgi://127.0.0.1:9000`, the name of one of
    /// `[upstreams]` with `protocol = "fastcgi"`, or a table as there.
    pub server: Proxy,
    /// The scripts and files that are looked for when a folder is asked for, one after the other.
    #[serde(default = "index")]
    pub index: Vec<String>,
    /// The script of the folder that is run where there is neither script nor file of the name that was asked for; `""`: none.
    #[serde(default = "fallback")]
    pub fallback: String,
    /// The folder as PHP-FPM sees it, if that is another one, as in a container.
    pub script_root: Option<PathBuf>,
    /// Variables that scripts find in `$_SERVER` besides those of the request, or with another value than theirs; `PHP_VALUE` and
    /// `PHP_ADMIN_VALUE` set what `php.ini` does.
    #[serde(default)]
    pub variables: BTreeMap<VariableName, String>,
    /// Content of requests is collected up to this size before PHP-FPM is asked, so that slow senders take none of its processes. More goes
    /// through as it comes, or to `collect_on_disk` if its length is not known before, since scripts are told that first. All requests of
    /// the route together have 64 times as much at one time; beyond that it is as with more of one request.
    #[serde(default = "COLLECT")]
    #[schemars(default = "written_collect")]
    pub collect: Size,
    /// Content that comes without its length and is larger than `collect` is written to a file without a name in the folder of
    /// `[server] buffering` until all of it is there, up to this size; more is answered 411. All of them and held responses together have
    /// `buffering.disk` of `[server]`; beyond that it is 503.
    #[serde(default = "COLLECT_ON_DISK")]
    #[schemars(default = "written_collect_on_disk")]
    pub collect_on_disk: Size,
    /// Whether files with `.br`, `.zst` and `.gz` at the end of their names are served for those without it, to clients that take them.
    #[serde(default)]
    pub precompressed: bool,
    /// Whether symbolic links are followed that lead out of the folder; others are, unless they lead to a name that begins with a dot.
    #[serde(default)]
    pub links_outside: bool,
    /// Content types by the ends of names, without the dot, such as `{ glsl = "text/plain; charset=utf-8" }`, in place of those that are known.
    #[serde(default)]
    pub types: BTreeMap<NameEnd, ContentType>,
}

/// What is collected where nothing is said of it.
pub(crate) const COLLECT: fn() -> Size = || Size(1 << 20);

/// The same on the disk.
pub(crate) const COLLECT_ON_DISK: fn() -> Size = || Size(1 << 30);

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
    /// The upstream that is asked.
    pub(crate) fn upstream<'a>(&'a self, config: &'a Config) -> Option<Cow<'a, Upstream>> {
        match &self.server {
            Proxy::Named(name) => config.upstreams.get(name).map(Cow::Borrowed),
            Proxy::Own(own) if own.protocol == UpstreamProtocol::Auto => {
                Some(Cow::Owned(Upstream { protocol: UpstreamProtocol::FastCgi, ..(**own).clone() }))
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
        let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !text.is_empty();
        let is_name = is_name && !text.starts_with(|first: char| first.is_ascii_digit());
        is_name
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| format!("{text:?} is no name of a variable: letters, digits and _, such as APP_ENV"))
    }
}
written!(VariableName, "variable_name", "The name of a variable.", "APP_ENV");

pub(super) fn check(config: &Config, php: &Php, place: &Place, problems: &mut Vec<Problem>) {
    let server = place.key("server");
    if let Proxy::Named(name) = &php.server {
        check_name(config, name, &server, "unix:/run/php/php-fpm.sock", problems);
    }
    if let Some(upstream) = php.upstream(config) {
        if !upstream.speaks_fastcgi() {
            let hint = match &php.server {
                Proxy::Named(name) => format!("write protocol = \"fastcgi\" into [upstreams.{name}]"),
                Proxy::Own(_) => "leave `protocol` out".to_owned(),
            };
            problems.push(config.problem(&server, "PHP is asked over FastCGI, and this upstream speaks another protocol").with_hint(hint));
        } else if let Proxy::Own(_) = &php.server {
            check_upstream(config, &upstream, &server, problems);
        }
    }
    for (key, names) in [("index", &php.index[..]), ("fallback", std::slice::from_ref(&php.fallback))] {
        for name in names {
            let is_below = !name.starts_with('/') && !name.split('/').any(|part| matches!(part, "." | ".."));
            let is_name = is_below && !name.ends_with('/') && (key == "fallback" || !name.is_empty() && !name.contains('/'));
            let is_run = key == "index" || name.is_empty() || is_script(name.as_bytes());
            if !is_name || !is_run {
                let problem = config
                    .problem(&place.key(key), format_args!("{name:?} is no name of a {}", if key == "index" { "file" } else { "script" }));
                problems.push(problem.with_hint("name one as seen from the folder, such as \"index.php\""));
            }
        }
    }
    if php.script_root.as_ref().is_some_and(|root| !root.is_absolute()) {
        let problem = config.problem(&place.key("script_root"), "it is not clear where PHP-FPM finds this folder");
        problems.push(problem.with_hint("write the whole path from / on, as PHP-FPM sees it"));
    }
}
