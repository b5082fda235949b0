//! What of a site can be switched while it is served, without another configuration.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, PoisonError};

use http::HeaderValue;

use crate::config::HostPattern;
use crate::gateway::Gateway;
use crate::site_certificates::Certificate;

/// What responses over TLS and TCP say of HTTP/3.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Announced {
    Nothing,
    /// What the configuration says.
    Configured,
    /// That there is none any more.
    Clear,
}

/// The switches of one site, as workers and handshakes read them.
#[derive(Debug)]
pub(crate) struct SiteSwitches {
    configured_http3: bool,
    http3: AtomicBool,
    announced: AtomicU8,
}

/// What was switched by hand; `None` leaves it to the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Switched {
    http3: Option<bool>,
    alt_svc_clear: bool,
}

impl SiteSwitches {
    pub(crate) fn new(configured_http3: bool) -> Self {
        let switches = Self { configured_http3, http3: AtomicBool::new(false), announced: AtomicU8::new(0) };
        switches.set(Switched::default());
        switches
    }

    fn set(&self, switched: Switched) {
        let http3 = switched.http3.unwrap_or(self.configured_http3);
        // Whoever has learnt of HTTP/3 has to unlearn it.
        let announced = match () {
            () if switched.alt_svc_clear || (!http3 && switched.http3.is_some()) => Announced::Clear,
            () if http3 => Announced::Configured,
            () => Announced::Nothing,
        };
        self.http3.store(http3, Ordering::Relaxed);
        self.announced.store(announced as u8, Ordering::Relaxed);
    }

    /// Whether the site is served over HTTP/3 now.
    pub(crate) fn http3(&self) -> bool {
        self.http3.load(Ordering::Relaxed)
    }

    /// What a response over TLS and TCP says of HTTP/3. `configured`: when nothing was switched.
    pub(crate) fn alt_svc(&self, configured: Option<&HeaderValue>) -> Option<HeaderValue> {
        const NOTHING: u8 = Announced::Nothing as u8;
        const CONFIGURED: u8 = Announced::Configured as u8;
        match self.announced.load(Ordering::Relaxed) {
            NOTHING => None,
            CONFIGURED => configured.cloned(),
            _ => Some(HeaderValue::from_static("clear")),
        }
    }
}

/// A site as it is served now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteState {
    /// Its hosts, as the configuration writes them.
    pub hosts: Vec<String>,
    /// Whether it is served over TLS.
    pub is_secure: bool,
    /// Whether it is served over HTTP/3 now.
    pub http3: bool,
    /// Whether the configuration says so.
    pub configured_http3: bool,
    /// Whether clients are told to forget HTTP/3, beyond what the configuration says.
    pub alt_svc_clear: bool,
}

impl SiteState {
    /// Whether it is served otherwise than the configuration says.
    pub fn is_switched(&self) -> bool {
        self.http3 != self.configured_http3 || self.alt_svc_clear
    }
}

/// A switch of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// HTTP/3 on or off; `None` leaves it to the configuration again.
    Http3(Option<bool>),
    /// `Alt-Svc: clear` instead of what is configured.
    AltSvcClear(bool),
}

/// The site of this host could not be switched.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// No site has this host.
    #[error("there is no site with the host {0:?}")]
    Unknown(String),
    /// HTTP/3 needs TLS.
    #[error("the site {0:?} has no certificate, without which there is no HTTP/3")]
    NoTls(String),
}

/// A site as the plan lists it.
pub(crate) struct Listed {
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) is_secure: bool,
    pub(crate) switches: Arc<SiteSwitches>,
    /// Of each host; none without TLS.
    pub(crate) certificates: Vec<Certificate>,
}

/// What was switched, by host. It holds until the process ends, over reloads, so that one of them does not undo in silence what somebody
/// did in need. As large as there were hosts of sites that somebody switched.
#[derive(Default)]
pub(crate) struct ByHand(BTreeMap<HostPattern, Switched>);

impl ByHand {
    fn of(&self, hosts: &[HostPattern]) -> Switched {
        hosts.iter().find_map(|host| self.0.get(host)).copied().unwrap_or_default()
    }

    /// Switches the sites of a new plan as they were switched before.
    pub(crate) fn apply(&self, sites: &[Listed]) {
        for site in sites {
            site.switches.set(self.of(&site.hosts));
        }
    }
}

impl Gateway {
    /// All sites, in the order of the configuration.
    pub fn sites(&self) -> Vec<SiteState> {
        let by_hand = self.by_hand().lock().unwrap_or_else(PoisonError::into_inner);
        self.plan().listed.iter().map(|site| state(site, by_hand.of(&site.hosts))).collect()
    }

    /// Switches the site that has `host` in its configuration, at once and until this process ends or it is switched again. Connections over
    /// HTTP/3 are not ended: their requests are answered 421, so that clients ask again over TCP.
    ///
    /// # Errors
    ///
    /// There is no such site, or it has no TLS.
    pub fn switch(&self, host: &str, switch: Switch) -> Result<SiteState, SwitchError> {
        let unknown = || SwitchError::Unknown(host.to_owned());
        let pattern: HostPattern = host.parse().map_err(|_| unknown())?;
        let mut by_hand = self.by_hand().lock().unwrap_or_else(PoisonError::into_inner);
        let plan = self.plan();
        let site = plan.listed.iter().find(|site| site.hosts.contains(&pattern)).ok_or_else(unknown)?;
        if !site.is_secure {
            return Err(SwitchError::NoTls(host.to_owned()));
        }
        let mut switched = by_hand.of(&site.hosts);
        match switch {
            Switch::Http3(http3) => switched.http3 = http3,
            Switch::AltSvcClear(clear) => switched.alt_svc_clear = clear,
        }
        for host in &site.hosts {
            if switched == Switched::default() {
                by_hand.0.remove(host);
            } else {
                by_hand.0.insert(host.clone(), switched);
            }
        }
        site.switches.set(switched);
        Ok(state(site, switched))
    }
}

fn state(site: &Listed, switched: Switched) -> SiteState {
    SiteState {
        hosts: site.hosts.iter().map(ToString::to_string).collect(),
        is_secure: site.is_secure,
        http3: site.switches.http3(),
        configured_http3: site.switches.configured_http3,
        alt_svc_clear: switched.alt_svc_clear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alt_svc(switches: &SiteSwitches) -> Option<HeaderValue> {
        switches.alt_svc(Some(&HeaderValue::from_static("h3")))
    }

    #[test]
    fn http3_switched_off_is_unlearnt_and_comes_back() {
        let switches = SiteSwitches::new(true);
        assert_eq!((switches.http3(), alt_svc(&switches)), (true, Some(HeaderValue::from_static("h3"))));
        switches.set(Switched { http3: Some(false), alt_svc_clear: false });
        assert_eq!((switches.http3(), alt_svc(&switches)), (false, Some(HeaderValue::from_static("clear"))));
        switches.set(Switched { http3: None, alt_svc_clear: true });
        assert_eq!((switches.http3(), alt_svc(&switches)), (true, Some(HeaderValue::from_static("clear"))));
        switches.set(Switched::default());
        assert_eq!((switches.http3(), alt_svc(&switches)), (true, Some(HeaderValue::from_static("h3"))));
    }

    #[test]
    fn site_without_http3_announces_nothing_until_it_is_switched_on() {
        let switches = SiteSwitches::new(false);
        assert_eq!((switches.http3(), alt_svc(&switches)), (false, None));
        switches.set(Switched { http3: Some(true), alt_svc_clear: false });
        assert_eq!((switches.http3(), alt_svc(&switches)), (true, Some(HeaderValue::from_static("h3"))));
    }
}
