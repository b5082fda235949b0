//! Faults that make clients refuse a certificate: its dates, its names, and a chain that does not
//! reach a root.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pronghorn_client::is_system_root;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::config::HostPattern;

/// Maximum number of names of a certificate that a message lists.
const LISTED_NAMES: usize = 5;

/// A fault that makes clients refuse a certificate, although it can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFault {
    /// Description of the fault, with the file.
    pub message: String,
    /// How to fix it.
    pub hint: &'static str,
}

/// Checks the chain in `file`, which is served for `hosts`. No fault is fatal: clients may accept
/// the certificate, for example if they have another clock or trust another root.
pub fn certificate_faults(
    key: &CertifiedKey,
    file: &Path,
    hosts: &[HostPattern],
    now: SystemTime,
) -> Vec<CertificateFault> {
    let chain: Vec<_> = key.cert.iter().filter_map(parsed).collect();
    let mut faults = Vec::new();
    let Some(leaf) = chain.first().filter(|_| chain.len() == key.cert.len()) else { return faults };
    let mut fault = |message: String, hint| {
        faults.push(CertificateFault { message: format!("{}: {message}", file.display()), hint });
    };
    for (index, certificate) in chain.iter().enumerate() {
        let which = if index == 0 {
            "the certificate".to_owned()
        } else {
            format!("certificate {} of the chain", index + 1)
        };
        if let Some(message) = outside_of_dates(certificate, now) {
            fault(
                format!("{which} {message}"),
                "renew the certificate, or check this machine's clock",
            );
        }
    }
    let missing: Vec<_> =
        hosts.iter().filter(|host| !covers(leaf, host)).map(ToString::to_string).collect();
    if !missing.is_empty() {
        let message = format!(
            "the certificate does not cover {}; it covers {}",
            missing.join(", "),
            names(leaf)
        );
        fault(
            message,
            "use a certificate for all hosts of the site, or move the other hosts to their own \
            site",
        );
    }
    let broken =
        chain.windows(2).position(|pair| pair[0].issuer().as_raw() != pair[1].subject().as_raw());
    if let Some(index) = broken {
        let message = format!(
            "certificate {} of the chain is not the expected issuer, {}",
            index + 2,
            chain[index].issuer()
        );
        fault(message, "put the site's certificate first, then each certificate's issuer");
    } else if chain.len() == 1
        && leaf.issuer().as_raw() != leaf.subject().as_raw()
        && !is_system_root(leaf.issuer().as_raw())
    {
        let message = format!(
            "incomplete chain: the issuer, {}, is neither in the file nor a root that this system \
            trusts",
            leaf.issuer()
        );
        fault(
            message,
            "append the intermediate certificates, as in the file often named fullchain.pem",
        );
    }
    faults
}

fn parsed<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

fn outside_of_dates(certificate: &X509Certificate<'_>, now: SystemTime) -> Option<String> {
    let time = |time: ASN1Time| {
        SystemTime::UNIX_EPOCH
            + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or_default())
    };
    let (from, until) =
        (time(certificate.validity().not_before), time(certificate.validity().not_after));
    let date =
        |time: SystemTime| httpdate::fmt_http_date(time.min(SystemTime::UNIX_EPOCH + LAST_DATE));
    if until < now {
        Some(format!("expired on {}", date(until)))
    } else if from > now {
        Some(format!("is not valid before {}", date(from)))
    } else {
        None
    }
}

/// The end of the year 9999: the latest date in a certificate, and in HTTP.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// Returns whether the certificate covers a host (RFC 9525, section 6.3): only alternative names
/// count, and a wildcard stands for the leftmost label.
fn covers(leaf: &X509Certificate<'_>, host: &HostPattern) -> bool {
    match host {
        // Any certificate may be intended for some of the hosts.
        HostPattern::Any => true,
        HostPattern::Wildcard(suffix) => dns_names(leaf).any(|name| {
            name.strip_prefix('*').is_some_and(|below| below.eq_ignore_ascii_case(suffix))
        }),
        HostPattern::Exact(name) => match name.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => addresses(leaf).any(|one| one == address),
            Err(_) => dns_names(leaf).any(|one| {
                let below = name.split_once('.').map(|(_, below)| below);
                let is_wildcard = one
                    .strip_prefix("*.")
                    .zip(below)
                    .is_some_and(|(one, below)| one.eq_ignore_ascii_case(below));
                one.eq_ignore_ascii_case(name) || is_wildcard
            }),
        },
    }
}

fn alternative_names<'a>(
    leaf: &'a X509Certificate<'_>,
) -> impl Iterator<Item = &'a GeneralName<'a>> {
    let extension = leaf.subject_alternative_name().ok().flatten();
    extension.into_iter().flat_map(|extension| &extension.value.general_names)
}

fn dns_names<'a>(leaf: &'a X509Certificate<'_>) -> impl Iterator<Item = &'a str> {
    alternative_names(leaf)
        .filter_map(|name| if let GeneralName::DNSName(name) = name { Some(*name) } else { None })
}

fn addresses<'a>(leaf: &'a X509Certificate<'_>) -> impl Iterator<Item = IpAddr> + 'a {
    alternative_names(leaf).filter_map(|name| match name {
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from),
        },
        _ => None,
    })
}

fn names(leaf: &X509Certificate<'_>) -> String {
    let all: Vec<_> = dns_names(leaf)
        .map(str::to_owned)
        .chain(addresses(leaf).map(|address| address.to_string()))
        .collect();
    match all.len() {
        0 => "no host".to_owned(),
        count if count <= LISTED_NAMES => all.join(", "),
        count => format!("{} and {} more", all[..LISTED_NAMES].join(", "), count - LISTED_NAMES),
    }
}
