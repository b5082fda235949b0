//! A configuration put to use: what all workers share of it.

mod actions;
mod at_once;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ipnet::IpNet;
use pronghorn_certificates::{CertificateError, Loaded};
use pronghorn_client::Roots;
use pronghorn_engine::Response;
use rustc_hash::FxHashMap;

use crate::StaticFiles;
use crate::access_log::{AccessLog, LogCounts};
use crate::acme;
use crate::application::ApplicationPlan;
use crate::certificate_faults::{CertificateFault, certificate_faults};
use crate::client_auth::ClientAuthPlan;
use crate::config::{
    self, AcmeChallenge, AltSvc, CertificateFiles, ClearText, Config, ErrorPages, Fault, FieldName, HostPattern, Log, MatchTable,
    PathPattern, Paths, Place, Problem, Route, Server, Site, Tls, has_clear,
};
use crate::content_types;
use crate::extras::{Extras, Pages};
use crate::hosts::Hosts;
use crate::layers::{Layer, Registry};
use crate::proxy::{Observer, UpstreamPlan};
use crate::ramp::Ramp;
use crate::route_index::RouteIndex;
use crate::rules::Rules;
use crate::site_certificates::{Certificate, Names, SiteCertificate};
use crate::switches::{Listed, SiteSwitches};
use crate::tunnels::Tunnels;

/// A page for errors has no more.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// What workers answer with.
pub(crate) struct Plan {
    pub(crate) sites: Hosts<Arc<SitePlan>>,
    pub(crate) trusted_proxies: Arc<[IpNet]>,
    /// Whether clients of any site are asked for certificates.
    pub(crate) asks_clients: bool,
    /// What handshakes show.
    pub(crate) certificates: Arc<Names>,
    /// In place of what sites announce of HTTP/3, while not all clients hear of it.
    pub(crate) ramp: Option<Ramp>,
    pub(crate) log: Option<Arc<AccessLog>>,
    pub(crate) log_counts: Arc<LogCounts>,
    log_settings: Log,
    /// All sites, in the order of the configuration.
    pub(crate) listed: Vec<Listed>,
    pub(crate) upstreams: Vec<Arc<UpstreamPlan>>,
    /// The certificates that are ordered.
    pub(crate) ordered: Option<acme::Wanted>,
    /// Layers with a memory, to be kept over a reload, by [`memory_keys`].
    remembering: FxHashMap<String, Arc<dyn Layer>>,
    /// What clients will not take of certificates.
    pub(crate) warnings: Vec<Problem>,
}

/// A site.
pub(crate) struct SitePlan {
    pub(crate) is_secure: bool,
    pub(crate) switches: Arc<SiteSwitches>,
    pub(crate) clear_text: ClearText,
    /// What responses over TLS and TCP say of HTTP/3, where it is on.
    pub(crate) alt_svc: Option<HeaderValue>,
    /// Which clients it is for, where they show certificates.
    pub(crate) client_auth: Option<ClientAuthPlan>,
    pub(crate) routes: Vec<RoutePlan>,
    index: RouteIndex,
    /// For errors without a route.
    pub(crate) pages: Vec<Arc<Pages>>,
}

/// A route. Its number among all of its plan is what workers keep their own part of it under.
pub(crate) struct RoutePlan {
    pub(crate) number: usize,
    /// Of which one has to be true.
    pub(crate) matches: Vec<MatchTable>,
    pub(crate) strip_prefix: bool,
    pub(crate) paths: Paths,
    /// Fields of clients that others are not asked with.
    pub(crate) kept_fields: Box<[HeaderName]>,
    pub(crate) request_headers: Rules,
    pub(crate) response_headers: [Rules; 2],
    /// In which protocols requests may go on; `None` where what answers has none.
    pub(crate) tunnels: Option<Arc<Tunnels>>,
    pub(crate) layers: Vec<Arc<dyn Layer>>,
    pub(crate) extras: Option<Extras>,
    pub(crate) action: ActionPlan,
}

/// What answers.
pub(crate) enum ActionPlan {
    Files(StaticFiles),
    Proxy(Arc<UpstreamPlan>),
    Application(Arc<ApplicationPlan>),
    Redirect { to: String, status: StatusCode },
    Respond { status: StatusCode, content_type: HeaderValue, body: bytes::Bytes },
}

/// What a plan is made from besides the configuration.
pub(crate) struct Surroundings<'a> {
    /// The port that TLS is listened on, where it is.
    pub(crate) https_port: Option<u16>,
    /// Where a certificate for development is kept.
    pub(crate) development: &'a dyn Fn() -> Result<Loaded, CertificateError>,
    /// The plan that is there, from which what stays the same is taken.
    pub(crate) before: Option<&'a Plan>,
    /// What layers there are.
    pub(crate) layers: &'a Registry,
    /// Who is told when servers of upstreams go out and come back.
    pub(crate) observer: &'a Arc<Observer>,
}

impl Plan {
    /// Opens folders, certificates and logs.
    ///
    /// # Errors
    ///
    /// All that cannot be had.
    pub(crate) fn new(config: &Config, surroundings: &Surroundings<'_>) -> Result<Self, Vec<Problem>> {
        let mut making = Making {
            config,
            surroundings,
            problems: Vec::new(),
            upstreams: Vec::new(),
            known_upstreams: ByName::default(),
            upstreams_before: surroundings.before.map(|before| by_name(&before.upstreams)).unwrap_or_default(),
            routes: 0,
            system_roots: None,
            remembering: FxHashMap::default(),
            ordered: None,
            warnings: Vec::new(),
        };
        making.buffering_folder();
        let log_counts = surroundings.before.map_or_else(Arc::default, |before| before.log_counts.clone());
        let log = making.log(&log_counts);
        let mut sites = Hosts::new();
        let mut listed = Vec::new();
        let mut names = Names { sites: Hosts::new(), first: None, asks_any: false };
        for site in &config.sites {
            let http3 = site.tls.is_some() && site.http3.unwrap_or(config.server.http3);
            let switches = Arc::new(SiteSwitches::new(http3));
            let certificates = site.tls.as_ref().map(|tls| making.certificates(site, tls)).unwrap_or_default();
            let asks_clients = matches!(&site.tls, Some(Tls::Files(files)) if files.client.is_some());
            names.asks_any |= asks_clients;
            for (host, certificate) in site.hosts.iter().zip(&certificates) {
                let shown = SiteCertificate { certificate: certificate.clone(), switches: switches.clone(), asks_clients };
                names.sites.insert(host, shown.clone());
                names.first.get_or_insert(shown);
            }
            listed.push(Listed { hosts: site.hosts.clone(), is_secure: site.tls.is_some(), switches: switches.clone(), certificates });
            let plan = Arc::new(making.site(site, switches.clone()));
            site.hosts.iter().for_each(|host: &HostPattern| sites.insert(host, plan.clone()));
        }
        if !making.problems.is_empty() {
            return Err(making.problems);
        }
        let trusted_proxies = config.server.trusted_proxies.iter().map(|network| network.0).collect();
        let plan = Self {
            sites,
            trusted_proxies,
            asks_clients: names.asks_any,
            ramp: surroundings.https_port.and_then(|port| ramp(&config.server, port)),
            log,
            log_counts,
            log_settings: config.log.clone(),
            listed,
            upstreams: making.upstreams,
            ordered: making.ordered,
            remembering: making.remembering,
            certificates: Arc::new(names),
            warnings: making.warnings,
        };
        Ok(plan)
    }
}

struct Making<'a> {
    config: &'a Config,
    surroundings: &'a Surroundings<'a>,
    problems: Vec<Problem>,
    upstreams: Vec<Arc<UpstreamPlan>>,
    /// The same, and those of the plan before, by name.
    known_upstreams: ByName,
    upstreams_before: ByName,
    routes: usize,
    /// Whom the system trusts, read once.
    system_roots: Option<Arc<rustls::ClientConfig>>,
    remembering: FxHashMap<String, Arc<dyn Layer>>,
    ordered: Option<acme::Wanted>,
    warnings: Vec<Problem>,
}

/// What is wrong is among the problems already.
struct Told;

impl Making<'_> {
    fn problem(&mut self, place: &Place, message: impl std::fmt::Display, hint: &str) {
        self.problems.push(self.config.problem(place, message).with_hint(hint));
    }

    /// The same of something that this user cannot have.
    fn lacking(&mut self, place: &Place, fault: impl Into<Fault>, message: impl std::fmt::Display, hint: &str) {
        self.problems.push(self.config.problem(place, message).with_hint(hint).with_fault(fault));
    }

    /// Looks for the folder of responses that are held, if one is named.
    fn buffering_folder(&mut self) {
        let folder = self.config.buffering_folder();
        if self.config.server.buffering.folder.is_some() && !folder.is_dir() {
            let place = Place { file: 0, path: ["server", "buffering", "folder"].map(Into::into).into() };
            let message = format_args!("there is no folder {}", folder.display());
            self.lacking(&place, Fault::Missing, message, "name one that this user may write");
        }
    }

    fn log(&mut self, counts: &Arc<LogCounts>) -> Option<Arc<AccessLog>> {
        if let Some(before) = self.surroundings.before
            && before.log_settings == self.config.log
        {
            return before.log.clone();
        }
        let place = Place { file: 0, path: vec!["log".into(), "access".into()] };
        let format = self.config.log.format;
        let log = match self.config.log.access.as_deref() {
            Some("off") => return None,
            name @ (None | Some("stderr" | "stdout")) => AccessLog::to_standard(name != Some("stdout"), format, counts.clone()),
            Some(path) => {
                let path = self.config.path(&place, Path::new(path));
                match AccessLog::to_file(path.clone(), format, counts.clone()) {
                    Ok(log) => log,
                    Err(error) => {
                        let message = format_args!("{}: {error}", path.display());
                        self.lacking(&place, &error, message, "name a file that this user may write");
                        return None;
                    }
                }
            }
        };
        Some(Arc::new(log))
    }

    /// One for each host; none if there is anything wrong.
    fn certificates(&mut self, site: &Site, tls: &Tls) -> Vec<Certificate> {
        if *tls == Tls::Acme {
            return site.hosts.iter().filter_map(|host| self.ordered(site, host)).collect();
        }
        let read = self.certificate(site, tls).map(Certificate::Read);
        site.hosts.iter().zip(std::iter::repeat(read)).filter_map(|(_, certificate)| certificate).collect()
    }

    fn ordered(&mut self, site: &Site, host: &HostPattern) -> Option<Certificate> {
        let (state_dir, HostPattern::Exact(host)) = (self.config.state_dir()?, host) else { return None };
        if self.ordered.is_none() {
            let acme = self.config.acme.clone();
            let trust = match &acme.trust {
                Some(path) => {
                    let place = Place { file: 0, path: vec!["acme".into(), "trust".into()] };
                    let path = self.config.path(&place, path);
                    let read = std::fs::read(&path).map_err(|error| (Fault::from(&error), error.to_string()));
                    match read
                        .and_then(|pem| Roots::pem(&pem).to_config().map(|_| pem).map_err(|error| (Fault::Malformed, error.to_string())))
                    {
                        Ok(pem) => Some(Arc::from(pem)),
                        Err((fault, error)) => {
                            let message = format_args!("{}: {error}", path.display());
                            self.lacking(&place, fault, message, "name a file with certificates in PEM form as `trust` in [acme]");
                            return None;
                        }
                    }
                }
                None => None,
            };
            let can_be_tried = |one: &AcmeChallenge| *one != AcmeChallenge::Http01 || has_clear(&self.config.server);
            let challenges = acme.challenges.iter().copied().filter(can_be_tried).collect();
            self.ordered = Some(acme::Wanted::new(acme::Settings { acme, trust, challenges }, &state_dir));
        }
        let before = self.surroundings.before.and_then(|before| before.ordered.as_ref());
        match self.ordered.as_mut()?.slot(host, before) {
            Ok(slot) => Some(Certificate::Ordered(slot)),
            Err(error) => {
                self.problem(
                    &site.place.key("tls"),
                    error,
                    "make it readable for this user, or name another folder as `state_dir` in [server]",
                );
                None
            }
        }
    }

    fn certificate(&mut self, site: &Site, tls: &Tls) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let loaded = match tls {
            Tls::Acme => return None,
            Tls::Development => (self.surroundings.development)(),
            Tls::Files(files) => {
                Loaded::from_files(&self.config.path(&site.place, &files.cert), &self.config.path(&site.place, &files.key))
            }
        };
        match loaded {
            Ok(loaded) => {
                // One for development is for this machine, whatever the sites are called.
                if matches!(tls, Tls::Files(_)) {
                    let faults = certificate_faults(&loaded.key, &loaded.cert, &site.hosts, SystemTime::now());
                    let warning =
                        |fault: CertificateFault| self.config.problem(&site.place.key("tls"), fault.message).with_hint(fault.hint);
                    self.warnings.extend(faults.into_iter().map(warning));
                }
                Some(loaded.key)
            }
            Err(errors) => {
                for error in errors.each() {
                    self.certificate_problem(site, &error);
                }
                None
            }
        }
    }

    fn certificate_problem(&mut self, site: &Site, error: &CertificateError) {
        let hint = error.hint("name", "the certificate chain as cert and its key as key");
        let fault = match error {
            CertificateError::File { source, .. } | CertificateError::Keeping { source, .. } => Fault::from(source),
            _ => Fault::Malformed,
        };
        self.lacking(&site.place.key("tls"), fault, error, &hint);
    }

    fn site(&mut self, site: &Site, switches: Arc<SiteSwitches>) -> SitePlan {
        let is_secure = site.tls.is_some();
        let pages = self.pages(&site.place, &site.errors, site.errors_of_upstreams);
        let client_auth = self.client_auth(site);
        let routes: Vec<_> = site.routes.iter().filter_map(|route| self.route(site, route, &pages)).collect();
        let index = RouteIndex::new(routes.iter().map(|route| &route.matches[..]));
        let alt_svc = if is_secure { self.surroundings.https_port.and_then(|port| alt_svc(&self.config.server, port)) } else { None };
        SitePlan { is_secure, switches, clear_text: site.clear_text, alt_svc, client_auth, routes, index, pages }
    }

    fn client_auth(&mut self, site: &Site) -> Option<ClientAuthPlan> {
        let Some(Tls::Files(CertificateFiles { client: Some(client), .. })) = &site.tls else { return None };
        match ClientAuthPlan::new(&self.config.path(&site.place, &client.ca), client.mode) {
            Ok(plan) => Some(plan),
            Err((fault, error)) => {
                self.lacking(&site.place.key("tls"), fault, error, "name a file with certificates in PEM form as client.ca");
                None
            }
        }
    }

    fn route(&mut self, site: &Site, route: &Route, pages: &[Arc<Pages>]) -> Option<RoutePlan> {
        let extras = self.extras(route, pages);
        let layers = self.layers(site, route);
        let action = self.action(route)?;
        let upgrades = matches!(action, ActionPlan::Proxy(_)).then(|| route.upgrades.clone().unwrap_or_default());
        let tunnels = upgrades.map(|settings| Arc::new(Tunnels::new(settings, self.surroundings.observer.clone())));
        let number = self.routes;
        self.routes += 1;
        Some(RoutePlan {
            number,
            matches: route.matches.0.clone(),
            strip_prefix: route.strip_prefix,
            paths: route.paths(),
            kept_fields: route.keep_fields.iter().map(FieldName::name).collect(),
            request_headers: Rules::from(&route.request_headers),
            response_headers: Rules::both(&site.response_headers, &route.response_headers),
            tunnels,
            layers,
            extras: Some(extras).filter(|extras| !extras.is_empty()),
            action,
        })
    }

    fn extras(&mut self, route: &Route, of_site: &[Arc<Pages>]) -> Extras {
        let mut pages = self.pages(&route.place, &route.errors, route.errors_of_upstreams);
        pages.extend_from_slice(of_site);
        Extras {
            rewrite: route.rewrite.as_ref().map(|rewrite| rewrite.0.clone()),
            hints: route.early_hints.iter().map(|hint| (LINK, hint.0.clone())).collect(),
            cache_control: route.cache_control.as_ref().map(|value| value.0.clone()),
            pages,
            own: route.respond.as_ref().filter(|own| !own.0.body.is_empty()).and_then(|own| own.0.status).map(status),
        }
    }

    /// Reads the pages; none or one set of them.
    fn pages(&mut self, place: &Place, errors: &ErrorPages, for_upstreams: bool) -> Vec<Arc<Pages>> {
        let mut pages = Pages { pages: Vec::new(), for_upstreams };
        for (status, path) in &errors.0 {
            let path = self.config.path(place, path);
            match std::fs::read(&path) {
                Ok(content) if content.len() <= MAX_PAGE_BYTES => {
                    let content_type = content_types::of_name(&path, "text/plain");
                    pages.pages.push((*status, content_type, content.into()));
                }
                Ok(content) => {
                    let message = format_args!("{} has {} bytes", path.display(), content.len());
                    self.problem(&place.key("errors"), message, "pages for errors are kept in memory: 1 MiB is the most");
                }
                Err(error) => {
                    let message = format_args!("{}: {error}", path.display());
                    self.lacking(&place.key("errors"), &error, message, "name a file that this user may read");
                }
            }
        }
        if pages.pages.is_empty() { Vec::new() } else { vec![Arc::new(pages)] }
    }

    fn layers(&mut self, site: &Site, route: &Route) -> Vec<Arc<dyn Layer>> {
        let mut layers = Vec::new();
        let of_site = site.layers.iter().zip(0..).map(|(settings, number)| (None, settings, number));
        let of_route = route.layers.iter().zip(0..).map(|(settings, number)| (Some(route), settings, number));
        for (route, settings, number) in of_site.chain(of_route) {
            let alike = &route.map_or(&site.layers, |route| &route.layers)[..number];
            let alike = alike.iter().filter(|other| (&other.name, &other.options) == (&settings.name, &settings.options)).count();
            let keys = memory_keys(site, route, settings, alike);
            // A site's layer that remembers is one for all of its routes.
            if let Some(layer) = keys.iter().find_map(|key| self.remembering.get(key)) {
                layers.push(layer.clone());
                continue;
            }
            let before = self.surroundings.before.map(|before| &before.remembering);
            let layer = match before.and_then(|before| keys.iter().find_map(|key| before.get(key))) {
                Some(layer) => layer.clone(),
                None => match self.surroundings.layers.make(self.config, settings, &self.surroundings.observer.troubles) {
                    Ok(layer) => layer,
                    Err(mut problems) => {
                        // A site's are told once, not for each route.
                        problems.retain(|problem| !self.problems.contains(problem));
                        self.problems.append(&mut problems);
                        continue;
                    }
                },
            };
            if layer.has_memory() {
                self.remembering.extend(keys.into_iter().map(|key| (key, layer.clone())));
            }
            layers.push(layer);
        }
        layers
    }
}

/// What a layer with a memory is found again by at a reload: its settings, its route, and a host of its site. A site has a key for each of its
/// hosts, so that one that gains or loses hosts is the same site; where it stands in the files says nothing.
///
/// `alike`: how many layers of the same settings are before it in its list.
fn memory_keys(site: &Site, route: Option<&Route>, settings: &config::Layer, alike: usize) -> Vec<String> {
    let config::Layer { name, options, place: _ } = settings;
    let matches = route.map(|route| &route.matches);
    let rest = format!("{matches:?} {alike} {name:?} {options:?}");
    site.hosts.iter().map(|host| format!("{host} {rest}")).collect()
}

/// Upstreams that have the same name differ in their settings.
type ByName = FxHashMap<Arc<str>, Vec<Arc<UpstreamPlan>>>;

fn by_name(upstreams: &[Arc<UpstreamPlan>]) -> ByName {
    let mut found = ByName::default();
    for plan in upstreams {
        found.entry(plan.name().clone()).or_default().push(plan.clone());
    }
    found
}

fn status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("invariant: the configuration was checked")
}

fn ramp(server: &Server, port: u16) -> Option<Ramp> {
    let AltSvc { port: advertised, max_age, clear, ramp_up } = &server.alt_svc;
    let ramp_up = ramp_up.as_ref().filter(|_| !clear)?;
    Some(Ramp { since: ramp_up.since.0, takes: ramp_up.takes.0, port: advertised.unwrap_or(port), max_age: max_age.0 })
}

fn alt_svc(server: &Server, port: u16) -> Option<HeaderValue> {
    let AltSvc { port: advertised, max_age, clear, ramp_up: _ } = &server.alt_svc;
    if *clear {
        return Some(HeaderValue::from_static("clear"));
    }
    let port = advertised.unwrap_or(port);
    HeaderValue::try_from(format!("h3=\":{port}\"; ma={}", max_age.0.as_secs())).ok()
}

impl SitePlan {
    /// The place of the first route that a request is for. `path` is a reading of its path.
    pub(crate) fn find(&self, method: &Method, host: &str, path: &str, headers: &HeaderMap) -> Option<usize> {
        let holds = |(route, table): (u32, u32)| self.routes[route as usize].matches[table as usize].is_for_any_path(method, host, headers);
        self.index.find(host, path, holds).map(|(route, _)| route as usize)
    }

    /// The place of the route of that number.
    pub(crate) fn place_of(&self, number: usize) -> Option<usize> {
        // Those of a site are numbered one after the other.
        let place = number.checked_sub(self.routes.first()?.number)?;
        (place < self.routes.len()).then_some(place)
    }

    /// The route of that number.
    pub(crate) fn route(&self, number: usize) -> Option<&RoutePlan> {
        self.routes.get(self.place_of(number)?)
    }
}

impl RoutePlan {
    /// What stands before the first star of the pattern that a request's path matched; of the first one, where there are more.
    pub(crate) fn prefix(&self, method: &Method, host: &str, path: &str, headers: &HeaderMap) -> &str {
        let table = self.matches.iter().find(|one| one.is_for(method, host, path, headers));
        let pattern = table.and_then(|table| table.path.iter().find(|pattern| pattern.matches(path)));
        // Of a path without a star nothing would be left.
        pattern
            .map(PathPattern::prefix)
            .filter(|prefix| path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')))
            .unwrap_or_default()
    }
}

/// Text answers carry their type.
pub(crate) fn text(status: StatusCode, text: &'static str) -> Response {
    Response::new(status).with_header(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")).with_body(text)
}
