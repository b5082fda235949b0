//! Certificates that the server orders over ACME.

use std::path::PathBuf;
use std::sync::Arc;

use pronghorn_acme::{Challenge, LETS_ENCRYPT, Settings};
use schemars::JsonSchema;
use serde::Deserialize;

use super::admin::Token;
use super::server::Server;
use super::values::string_enum;

/// The table `[acme]`: settings of the authority that issues certificates for sites with `tls =
/// "acme"` (RFC 8555).
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct Acme {
    /// Whether you agree to the authority's terms of service, which its directory links to. No
    /// certificate is ordered without it.
    pub terms_agreed: bool,
    /// Email address that the authority writes to about problems with your certificates.
    pub email: Option<String>,
    /// URL of the authority's directory.
    pub directory: String,
    /// PEM file with trusted root certificates for the authority's own server; if left out, the
    /// system's roots.
    pub trust: Option<PathBuf>,
    /// Challenges that the authority may use to validate that this server controls a name. After a
    /// failure the next one is tried.
    #[schemars(length(min = 1))]
    pub challenges: Vec<AcmeChallenge>,
    /// Certificate profile, such as `shortlived`, if the authority offers several.
    pub profile: Option<String>,
    /// Existing account with the authority that orders are bound to, if the authority requires one.
    pub external_account: Option<ExternalAccount>,
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            terms_agreed: false,
            email: None,
            directory: LETS_ENCRYPT.to_owned(),
            trust: None,
            challenges: vec![AcmeChallenge::TlsAlpn01, AcmeChallenge::Http01],
            profile: None,
            external_account: None,
        }
    }
}

impl Acme {
    /// Returns the settings of orders. `trust`: the content of the trust file. `challenges`: those
    /// for which there is a listener.
    pub(crate) fn settings(
        &self,
        trust: Option<Arc<[u8]>>,
        challenges: Vec<AcmeChallenge>,
    ) -> Settings {
        let mut settings = Settings::default();
        settings.directory.clone_from(&self.directory);
        settings.terms_agreed = self.terms_agreed;
        settings.email.clone_from(&self.email);
        settings.profile.clone_from(&self.profile);
        settings.external_account =
            self.external_account.as_ref().and_then(ExternalAccount::decoded);
        settings.trust = trust;
        settings.challenges = challenges.into_iter().map(Into::into).collect();
        settings
    }
}

string_enum! {
    /// A challenge that an authority uses to validate control of a name.
    AcmeChallenge: "challenge" {
        /// A TLS handshake on port 443 (RFC 8737).
        TlsAlpn01 = "tls-alpn-01",
        /// A clear-text request on port 80 (RFC 8555, section 8.3).
        Http01 = "http-01",
    }
}

impl From<AcmeChallenge> for Challenge {
    fn from(challenge: AcmeChallenge) -> Self {
        match challenge {
            AcmeChallenge::TlsAlpn01 => Self::TlsAlpn01,
            AcmeChallenge::Http01 => Self::Http01,
        }
    }
}

/// An external account with the authority (RFC 8555, section 7.3.4).
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Key identifier of the account.
    pub id: String,
    /// MAC key of the account, in base64url.
    #[schemars(with = "String")]
    pub key: Token,
}

impl ExternalAccount {
    /// Returns the account for orders; `None` if the key is not base64url.
    pub(crate) fn decoded(&self) -> Option<pronghorn_acme::ExternalAccount> {
        pronghorn_acme::ExternalAccount::new(self.id.as_str(), self.key.reveal())
    }
}

/// Returns whether any listener uses clear text.
pub(crate) fn has_clear(server: &Server) -> bool {
    server.listen.iter().any(|listen| !listen.secure)
}
