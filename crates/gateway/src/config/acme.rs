//! Certificates that the server orders itself.

use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::Deserialize;

use super::admin::Token;
use super::load::Config;
use super::patterns::HostPattern;
use super::problem::Problem;
use super::server::Server;
use super::site::{Site, Tls};
use super::source::Place;
use super::values::choice;

/// Let's Encrypt.
const DEFAULT_DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The table `[acme]`: where sites with `tls = "acme"` get their certificates from (RFC 8555).
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct Acme {
    /// Whether you agree to the terms of service of the authority; its directory says where they are. Nothing is ordered without.
    pub terms_agreed: bool,
    /// Where the authority writes to when something is wrong with your certificates.
    pub email: Option<String>,
    /// The URL of the authority's directory.
    pub directory: String,
    /// The file with the certificates of those who vouch for the authority's own server, in PEM form; if it is left out, whom the system
    /// trusts.
    pub trust: Option<PathBuf>,
    /// How the authority may find out that a name is this server's. After a failure the next one is tried.
    #[schemars(length(min = 1))]
    pub challenges: Vec<AcmeChallenge>,
    /// The kind of certificate, where the authority has several, such as `shortlived`.
    pub profile: Option<String>,
    /// The account with the authority that orders are for, where it wants one that was made elsewhere.
    pub external_account: Option<ExternalAccount>,
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            terms_agreed: false,
            email: None,
            directory: DEFAULT_DIRECTORY.to_owned(),
            trust: None,
            challenges: vec![AcmeChallenge::TlsAlpn01, AcmeChallenge::Http01],
            profile: None,
            external_account: None,
        }
    }
}

choice! {
    /// How an authority finds out that a name is this server's.
    AcmeChallenge: "challenge" {
        /// A TLS handshake on port 443 (RFC 8737).
        TlsAlpn01 = "tls-alpn-01",
        /// A request in clear text on port 80 (RFC 8555, section 8.3).
        Http01 = "http-01",
    }
}

/// An account that was made elsewhere (RFC 8555, section 7.3.4).
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Its identifier.
    pub id: String,
    /// Its key, in base64url.
    #[schemars(with = "String")]
    pub key: Token,
}

impl ExternalAccount {
    /// The key's bytes.
    pub(crate) fn key_bytes(&self) -> Option<Vec<u8>> {
        BASE64_URL_SAFE_NO_PAD.decode(self.key.reveal().trim_end_matches('=')).ok().filter(|key| !key.is_empty())
    }
}

pub(crate) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let sites: Vec<_> = config.sites.iter().filter(|site| site.tls == Some(Tls::Acme)).collect();
    let Acme { terms_agreed, email, directory, challenges, external_account, .. } = &config.acme;
    let place = |key: &str| Place { file: 0, path: vec!["acme".into(), key.into()] };
    if !directory.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some()) {
        let problem = config.problem(&place("directory"), format_args!("{directory:?} is no directory of an authority"));
        problems.push(problem.with_hint("write a URL that begins with https://"));
    }
    if email.as_ref().is_some_and(|email| !email.contains('@') || email.contains(char::is_whitespace)) {
        let problem = config.problem(&place("email"), "this is no address for mail");
        problems.push(problem.with_hint("write it as admin@example.org, or leave it out"));
    }
    if challenges.is_empty() {
        let problem = config.problem(&place("challenges"), "without a challenge no certificate can be had");
        problems.push(problem.with_hint("name \"tls-alpn-01\", \"http-01\" or both"));
    }
    if external_account.as_ref().is_some_and(|account| account.key_bytes().is_none()) {
        let problem = config.problem(&place("external_account").of(["key".into()]), "the key is not in base64url");
        problems.push(problem.with_hint("write it as the authority shows it"));
    }
    let Some(first) = sites.first() else { return };
    if !terms_agreed && config.is_whole {
        let problem = config.problem(&first.place.key("tls"), "certificates are ordered only by who agrees to the authority's terms");
        problems.push(problem.with_hint("set `terms_agreed = true` in [acme] when you have read them"));
    }
    if config.server.state_dir.is_none() && config.is_whole {
        let problem = config.problem(&first.place.key("tls"), "there is no folder to keep certificates in");
        problems.push(problem.with_hint("set `state_dir` in [server], such as \"/var/lib/pronghorn\""));
    }
    if challenges[..] == [AcmeChallenge::Http01] && !has_clear(&config.server) {
        let problem = config.problem(&place("challenges"), "no address speaks clear text, which \"http-01\" needs");
        problems.push(problem.with_hint("add one such as \"http://[::]:80\" to `listen` in [server], or name \"tls-alpn-01\""));
    }
    for site in sites {
        check_hosts(config, site, problems);
    }
}

/// Whether clear text is spoken at any address.
pub(crate) fn has_clear(server: &Server) -> bool {
    server.listen.iter().any(|listen| !listen.secure)
}

fn check_hosts(config: &Config, site: &Site, problems: &mut Vec<Problem>) {
    let is_public = config.acme.directory == DEFAULT_DIRECTORY;
    for (index, host) in site.hosts.iter().enumerate() {
        let message = match host {
            HostPattern::Exact(name) if name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>().is_ok() => {
                "certificates are ordered for names, not for addresses"
            }
            HostPattern::Exact(name) if is_public && !name.contains('.') => "a public authority has no certificates for this name",
            HostPattern::Exact(name) if name.len() > 253 || name.contains('_') => "no authority has certificates for this name",
            HostPattern::Exact(_) => continue,
            HostPattern::Below(_) | HostPattern::Any => "a certificate cannot be ordered for a host with a star by these challenges",
        };
        let problem = config.problem(&site.place.of(["hosts".into(), index.into()]), message);
        problems.push(problem.with_hint("name each host, or give the site a certificate with `tls = { cert = …, key = … }`"));
    }
}
