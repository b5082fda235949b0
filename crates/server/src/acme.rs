//! Certificates that the server orders and renews itself (RFC 8555).

use std::fmt;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use pronghorn_acme::{
    CertificateRequests, Challenge, Challenges, ExternalAccount, Invalid, ManagedCertificate,
    Orders, Settings, check_directory, check_email, check_host,
};
use pronghorn_client::Roots;
use pronghorn_engine::{ACME_TLS, Identity, Policy};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::Error;

type OnEvent = Box<dyn Fn(&str) + Send + Sync>;

/// Certificates from an ACME authority, Let's Encrypt by default: see
/// [`Server::acme`](crate::Server::acme).
///
/// The authority validates that each name leads here, over TLS on port 443 (TLS-ALPN-01), or over
/// port 80 (HTTP-01) if the server has a cleartext address. Until its certificate has been issued,
/// which usually takes seconds, handshakes for a name fail. Failed orders are repeated, with longer
/// and longer waits.
///
/// Clients that ask for another name, or for none, get the certificate of the first host.
///
/// ```
/// # use pronghorn_server::{Acme, Server};
/// let acme = Acme::new(["www.example.com", "example.com"], "/var/lib/app")
///     .terms_agreed()
///     .email("admin@example.com");
/// let server = Server::new().listen("[::]:443").listen_clear("[::]:80").redirect_to_https().acme(acme);
/// # let _ = server;
/// ```
#[must_use = "it orders nothing until a server is started with it"]
pub struct Acme {
    hosts: Vec<String>,
    state_dir: PathBuf,
    settings: Settings,
    /// Whether the key of the external account could not be decoded.
    has_invalid_account: bool,
    on_event: Option<OnEvent>,
}

impl Acme {
    /// Orders a certificate for each of `hosts`. The account and the certificates are stored in
    /// `state_dir`. Several processes may share it, but only the one that orders can answer the
    /// challenge: the name must lead to that process.
    ///
    /// ```
    /// # use pronghorn_server::Acme;
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app");
    /// # let _ = acme;
    /// ```
    pub fn new(
        hosts: impl IntoIterator<Item = impl Into<String>>,
        state_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            hosts: hosts.into_iter().map(|host| host.into().to_ascii_lowercase()).collect(),
            state_dir: state_dir.into(),
            settings: Settings::default(),
            has_invalid_account: false,
            on_event: None,
        }
    }

    /// Agrees to the authority's terms of service, which its directory links to. No certificate is
    /// ordered without it.
    ///
    /// ```
    /// # use pronghorn_server::Acme;
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").terms_agreed();
    /// # let _ = acme;
    /// ```
    pub fn terms_agreed(mut self) -> Self {
        self.settings.terms_agreed = true;
        self
    }

    /// Sets the address that the authority writes to about problems with the certificates.
    ///
    /// ```
    /// # use pronghorn_server::Acme;
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").email("admin@example.com");
    /// # let _ = acme;
    /// ```
    pub fn email(mut self, email: impl Into<String>) -> Self {
        self.settings.email = Some(email.into());
        self
    }

    /// Sets the URL of the authority's directory. Default: Let's Encrypt.
    ///
    /// ```
    /// # use pronghorn_server::Acme;
    /// let staging = "https://acme-staging-v02.api.letsencrypt.org/directory";
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").directory(staging);
    /// # let _ = acme;
    /// ```
    pub fn directory(mut self, url: impl Into<String>) -> Self {
        self.settings.directory = url.into();
        self
    }

    /// Sets the root certificates of the authority's own server, as PEM text. Default: the system's.
    ///
    /// ```
    /// # use pronghorn_server::Acme;
    /// # let pem = "";
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").root_certificates_pem(pem);
    /// # let _ = acme;
    /// ```
    pub fn root_certificates_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.trust = Some(pem.into().into());
        self
    }

    /// Sets the certificate profile, if the authority offers several.
    ///
    /// ```
    /// # use pronghorn_server::Acme;
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").profile("shortlived");
    /// # let _ = acme;
    /// ```
    pub fn profile(mut self, name: impl Into<String>) -> Self {
        self.settings.profile = Some(name.into());
        self
    }

    /// Binds orders to an existing account with the authority, if it requires one: its key
    /// identifier and its MAC key in base64url, as the authority shows them.
    ///
    /// ```
    /// # use pronghorn_server::Acme;
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").external_account("kid-1", "zWNDZM6eQGHWpSRTPal5");
    /// # let _ = acme;
    /// ```
    pub fn external_account(mut self, id: impl Into<String>, key: impl AsRef<str>) -> Self {
        self.settings.external_account = ExternalAccount::new(id, key.as_ref());
        self.has_invalid_account = self.settings.external_account.is_none();
        self
    }

    /// Sets the challenges that the authority may use, in the order in which they are tried.
    /// Default: TLS-ALPN-01, then HTTP-01. HTTP-01 needs a cleartext address.
    ///
    /// ```
    /// # use pronghorn_server::{Acme, AcmeChallenge};
    /// // Only port 80 can be reached from outside.
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").challenges([AcmeChallenge::Http01]);
    /// # let _ = acme;
    /// ```
    pub fn challenges(mut self, challenges: impl IntoIterator<Item = Challenge>) -> Self {
        self.settings.challenges = challenges.into_iter().collect();
        self
    }

    /// Calls `on_event` with a line for each certificate that was issued, and for each order that
    /// failed, with the reason and the time of the next attempt. Lines about problems begin with
    /// `error: ` or `warning: `. The callback runs on the ordering thread and must not block.
    /// Default: writes the line to standard error.
    ///
    /// ```
    /// # use pronghorn_server::Acme;
    /// let acme = Acme::new(["www.example.com"], "/var/lib/app").on_event(|line| log(line));
    /// # fn log(_: &str) {}
    /// # let _ = acme;
    /// ```
    pub fn on_event(mut self, on_event: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Box::new(on_event));
        self
    }

    /// Checks the settings and reads the certificates that are stored. `has_clear`: there is a
    /// listener for HTTP-01.
    pub(crate) fn load(mut self, has_clear: bool) -> Result<(Identity, PendingOrders), Error> {
        self.settings.challenges.retain(|one| *one != Challenge::Http01 || has_clear);
        Error::all(self.problems().into_iter().map(Error::Acme).collect())?;
        let mut requests = CertificateRequests::new(self.settings, &self.state_dir);
        let hosts = self.hosts.iter().map(|host| requests.certificate(host, None));
        let certificates = hosts.collect::<io::Result<Vec<_>>>().map_err(Error::AcmeState)?;
        let orders = Orders::default();
        let challenges = orders.challenges().clone();
        let policy = Policy { acme_challenges: true, ..Policy::default() };
        let resolver = Arc::new(Resolver { certificates, challenges });
        let on_event = self.on_event.unwrap_or_else(|| {
            // A closed standard error is no reason to fail.
            Box::new(|line| drop(writeln!(io::stderr(), "{line}")))
        });
        let identity = Identity::with_policy(resolver, &policy)?;
        Ok((identity, PendingOrders { orders, requests, on_event }))
    }

    /// Returns what is wrong with the settings, and what to do.
    fn problems(&self) -> Vec<String> {
        let Settings { directory, email, trust, terms_agreed, challenges, .. } = &self.settings;
        let mut problems = Vec::new();
        if !terms_agreed {
            problems.push(format!(
                "ordering certificates requires agreement to the terms of service that {directory} \
                    links to; add Acme::terms_agreed when you have read them"
            ));
        }
        if challenges.is_empty() {
            problems.push(
                "no challenge can be answered, so no certificate can be issued; use TLS-ALPN-01, or \
                    HTTP-01 with Server::listen_clear"
                    .to_owned(),
            );
        }
        if self.has_invalid_account {
            problems.push(
                "invalid key of the external account: not base64url; copy it as the authority \
                    shows it"
                    .to_owned(),
            );
        }
        if self.hosts.is_empty() {
            problems.push("no host to order a certificate for; name one in Acme::new".to_owned());
        }
        if let Some(pem) = trust
            && let Err(error) = Roots::pem(pem).to_config()
        {
            problems.push(format!(
                "{error}; give certificates in PEM form to Acme::root_certificates_pem"
            ));
        }
        let mut check = |value: &str, checked: Result<(), Invalid>| {
            if let Err(Invalid { message, hint }) = checked {
                problems.push(format!("{message} {value:?}; {hint}"));
            }
        };
        check(directory, check_directory(directory));
        if let Some(email) = email {
            check(email, check_email(email));
        }
        for host in &self.hosts {
            check(host, check_host(host, directory));
        }
        problems
    }
}

impl fmt::Debug for Acme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acme")
            .field("hosts", &self.hosts)
            .field("state_dir", &self.state_dir)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Orders with checked settings, to be started with the server.
pub(crate) struct PendingOrders {
    orders: Orders,
    requests: CertificateRequests,
    on_event: OnEvent,
}

impl PendingOrders {
    pub(crate) fn challenges(&self) -> Arc<Challenges> {
        self.orders.challenges().clone()
    }

    /// Starts to order. Dropping the result ends it.
    pub(crate) fn start(self) -> Result<Orders, Error> {
        self.orders.start(Some(&self.requests), self.on_event).map_err(Error::AcmeState)?;
        Ok(self.orders)
    }
}

struct Resolver {
    certificates: Vec<Arc<ManagedCertificate>>,
    challenges: Arc<Challenges>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if hello.alpn().is_some_and(|protocols| protocols.eq([ACME_TLS])) {
            return self.challenges.certificate(hello.server_name()?);
        }
        let named = |name: &str| {
            self.certificates
                .iter()
                .find(|certificate| certificate.host().eq_ignore_ascii_case(name))
        };
        hello.server_name().and_then(named).or(self.certificates.first())?.key()
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("certificates", &self.certificates).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Running, Server};

    fn problem(acme: Acme) -> String {
        match acme.load(false) {
            Err(error) => error.to_string(),
            Ok(_) => "none".to_owned(),
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let acme = |hosts: &[&str]| Acme::new(hosts.iter().copied(), folder.path()).terms_agreed();
        assert_eq!(problem(acme(&["www.example.com", "WWW.example.org"])), "none");
        for (acme, expected) in [
            (Acme::new(["a.example"], folder.path()), "Acme::terms_agreed"),
            (acme(&[]), "no host"),
            (acme(&["a.example", "*.a.example"]), "\"*.a.example\"; list each host"),
            (acme(&["192.0.2.1"]), "not an IP address \"192.0.2.1\""),
            (acme(&["a.example"]).root_certificates_pem("no PEM"), "Acme::root_certificates_pem"),
            (acme(&["a.example"]).directory("staging"), "invalid ACME directory \"staging\""),
            (acme(&["a.example"]).email("mailto:a@b.example"), "invalid email address"),
            (acme(&["a.example"]).external_account("kid", "not base64!"), "not base64url"),
            (acme(&["a.example"]).external_account("kid", ""), "not base64url"),
            (acme(&["a.example"]).challenges([Challenge::Http01]), "Server::listen_clear"),
            (acme(&["192.0.2.1"]).email("nobody"), "2 errors"),
        ] {
            let problem = problem(acme);
            assert!(problem.contains(expected), "{problem}");
        }
    }

    fn hello(server: Server) -> Result<Running, Error> {
        server.workers(1).start(tower::service_fn(|_: http::Request<Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("hello")))
        }))
    }

    #[test]
    fn ordered_certificates_need_tls_and_cannot_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let acme = || {
            Acme::new(["a.example"], folder.path())
                .terms_agreed()
                .directory("https://127.0.0.1:9/dir")
                .on_event(|_| ())
        };
        let clear = hello(Server::new().listen_clear("127.0.0.1:0").acme(acme()));
        assert!(matches!(clear, Err(Error::AcmeWithoutTls)));
        let running = hello(Server::new().listen("127.0.0.1:0").acme(acme())).unwrap();
        let set = running.handle().set_certificate_files("chain.pem", "key.pem");
        assert!(matches!(set, Err(Error::CertificateOrdered)));
    }

    #[test]
    fn folder_that_cannot_be_used_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let acme = Acme::new(["a.example"], &file).terms_agreed();
        let started = hello(Server::new().listen("127.0.0.1:0").acme(acme));
        assert!(matches!(started, Err(Error::AcmeState(_))));
    }

    #[test]
    fn debug_output_hides_the_key_of_the_account() {
        let acme = Acme::new(["a.example"], "state").external_account("kid", "c2VjcmV0");
        let shown = format!("{acme:?}");
        assert!(shown.contains("a.example") && !shown.contains("c2VjcmV0"), "{shown}");
    }
}
