//! Switches of a site that take effect while it is served, without a reload.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use http::HeaderValue;

/// The announcement of HTTP/3 in responses over TLS and TCP.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Announcement {
    Nothing,
    /// As the configuration says.
    Configured,
    /// `Alt-Svc: clear`.
    Clear,
}

/// The switches of one site, read by workers and handshakes.
#[derive(Debug)]
pub(crate) struct SiteSwitches {
    configured_http3: bool,
    http3: AtomicBool,
    announced: AtomicU8,
}

/// Settings switched by hand; `None` uses the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) http3: Option<bool>,
    pub(crate) alt_svc_clear: bool,
}

impl SiteSwitches {
    pub(crate) fn new(configured_http3: bool) -> Self {
        let switches =
            Self { configured_http3, http3: AtomicBool::new(false), announced: AtomicU8::new(0) };
        switches.set(Override::default());
        switches
    }

    pub(crate) fn set(&self, switched: Override) {
        let http3 = switched.http3.unwrap_or(self.configured_http3);
        // Clients that have learnt of HTTP/3 must forget it.
        let announced = match () {
            () if switched.alt_svc_clear || (!http3 && switched.http3.is_some()) => {
                Announcement::Clear
            }
            () if http3 => Announcement::Configured,
            () => Announcement::Nothing,
        };
        self.http3.store(http3, Ordering::Relaxed);
        self.announced.store(announced as u8, Ordering::Relaxed);
    }

    /// Returns whether the configuration enables HTTP/3.
    pub(crate) fn configured_http3(&self) -> bool {
        self.configured_http3
    }

    /// Returns whether the site is currently served over HTTP/3.
    pub(crate) fn http3(&self) -> bool {
        self.http3.load(Ordering::Relaxed)
    }

    /// Returns the `Alt-Svc` value of a response over TLS and TCP. `configured` is used if nothing
    /// was switched.
    pub(crate) fn alt_svc(&self, configured: Option<&HeaderValue>) -> Option<HeaderValue> {
        const NOTHING: u8 = Announcement::Nothing as u8;
        const CONFIGURED: u8 = Announcement::Configured as u8;
        match self.announced.load(Ordering::Relaxed) {
            NOTHING => None,
            CONFIGURED => configured.cloned(),
            _ => Some(HeaderValue::from_static("clear")),
        }
    }
}

/// The current state of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteState {
    /// Host patterns, as the configuration writes them.
    pub hosts: Vec<String>,
    /// Whether it is served over TLS.
    pub is_secure: bool,
    /// Whether it is currently served over HTTP/3.
    pub http3: bool,
    /// Whether the configuration enables HTTP/3.
    pub configured_http3: bool,
    /// Whether clients are told to forget HTTP/3, in addition to the configuration.
    pub alt_svc_clear: bool,
}

impl SiteState {
    /// Returns whether the state differs from the configuration.
    pub fn is_switched(&self) -> bool {
        self.http3 != self.configured_http3 || self.alt_svc_clear
    }
}

/// A switch of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// HTTP/3 on or off; `None` uses the configuration again.
    Http3(Option<bool>),
    /// `Alt-Svc: clear` in place of the configured value.
    AltSvcClear(bool),
}

/// An error from switching a site.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    /// No site has this host.
    #[error("no site has the host {0:?}")]
    Unknown(String),
    /// HTTP/3 needs TLS.
    #[error("the site {0:?} has no certificate, which HTTP/3 requires")]
    NoTls(String),
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
        assert_eq!(
            (switches.http3(), alt_svc(&switches)),
            (true, Some(HeaderValue::from_static("h3")))
        );
        switches.set(Override { http3: Some(false), alt_svc_clear: false });
        assert_eq!(
            (switches.http3(), alt_svc(&switches)),
            (false, Some(HeaderValue::from_static("clear")))
        );
        switches.set(Override { http3: None, alt_svc_clear: true });
        assert_eq!(
            (switches.http3(), alt_svc(&switches)),
            (true, Some(HeaderValue::from_static("clear")))
        );
        switches.set(Override::default());
        assert_eq!(
            (switches.http3(), alt_svc(&switches)),
            (true, Some(HeaderValue::from_static("h3")))
        );
    }

    #[test]
    fn site_without_http3_announces_nothing_until_it_is_switched_on() {
        let switches = SiteSwitches::new(false);
        assert_eq!((switches.http3(), alt_svc(&switches)), (false, None));
        switches.set(Override { http3: Some(true), alt_svc_clear: false });
        assert_eq!(
            (switches.http3(), alt_svc(&switches)),
            (true, Some(HeaderValue::from_static("h3")))
        );
    }
}
