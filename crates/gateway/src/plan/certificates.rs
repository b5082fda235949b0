//! Certificates and client authentication of sites.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use pronghorn_acme::CertificateRequests;
use pronghorn_certificates::{CertificateError, Loaded};
use pronghorn_client::Roots;
use rustls::sign::CertifiedKey;

use super::builder::PlanBuilder;
use crate::certificates::certificate_faults::{CertificateFault, certificate_faults};
use crate::certificates::client_auth::ClientAuthPlan;
use crate::certificates::site_certificates::Certificate;
use crate::config::{
    AcmeChallenge, CertificateFiles, Fault, HostPattern, Location, Site, Tls, has_clear,
};

impl PlanBuilder<'_> {
    /// Returns a certificate for each host, or none if there is a problem.
    pub(super) fn certificates(&mut self, site: &Site, tls: &Tls) -> Vec<Certificate> {
        if *tls == Tls::Acme {
            return site.hosts.iter().filter_map(|host| self.ordered(site, host)).collect();
        }
        if let Tls::Files(files) = tls
            && !files.keys.is_empty()
        {
            let read = self.certificate_elsewhere(site, files);
            return site.hosts.iter().filter_map(|_| read.clone()).collect();
        }
        let read = self.certificate(site, tls).map(Certificate::Read);
        site.hosts
            .iter()
            .zip(std::iter::repeat(read))
            .filter_map(|(_, certificate)| certificate)
            .collect()
    }

    pub(super) fn ordered(&mut self, site: &Site, host: &HostPattern) -> Option<Certificate> {
        let (state_dir, HostPattern::Exact(host)) = (self.config.state_dir()?, host) else {
            return None;
        };
        if self.ordered.is_none() {
            let acme = &self.config.acme;
            let trust = match &acme.trust {
                Some(path) => {
                    let location = Location { file: 0, path: vec!["acme".into(), "trust".into()] };
                    let path = self.config.path(&location, path);
                    let read = std::fs::read(&path)
                        .map_err(|error| (Fault::from(&error), error.to_string()));
                    match read.and_then(|pem| {
                        Roots::pem(&pem)
                            .to_config()
                            .map(|_| pem)
                            .map_err(|error| (Fault::Malformed, error.to_string()))
                    }) {
                        Ok(pem) => Some(Arc::from(pem)),
                        Err((fault, error)) => {
                            let message = format_args!("{}: {error}", path.display());
                            self.missing_file(
                                &location,
                                fault,
                                message,
                                "name a file with certificates in PEM form as `trust` in [acme]",
                            );
                            return None;
                        }
                    }
                }
                None => None,
            };
            let can_be_tried = |one: &AcmeChallenge| {
                *one != AcmeChallenge::Http01 || has_clear(&self.config.server)
            };
            let challenges = acme.challenges.iter().copied().filter(can_be_tried).collect();
            self.ordered =
                Some(CertificateRequests::new(acme.settings(trust, challenges), &state_dir));
        }
        let before = self.context.before.and_then(|before| before.ordered.as_ref());
        match self.ordered.as_mut()?.certificate(host, before) {
            Ok(slot) => Some(Certificate::Ordered(slot)),
            Err(error) => {
                self.problem(
                    &site.location.key("tls"),
                    error,
                    "make it readable for this user, or name another folder as `state_dir` in \
                        [server]",
                );
                None
            }
        }
    }

    pub(super) fn certificate(
        &mut self,
        site: &Site,
        tls: &Tls,
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let loaded = match tls {
            Tls::Acme => return None,
            Tls::Development => (self.context.development)(),
            Tls::Files(files) => Loaded::from_files(
                &self.config.path(&site.location, &files.cert),
                // A certificate without a key is a problem of the configuration already.
                &self.config.path(&site.location, files.key.as_deref()?),
            ),
        };
        match loaded {
            Ok(loaded) => {
                // A development certificate is for this machine, whatever the names of the sites.
                if matches!(tls, Tls::Files(_)) {
                    self.warn_of_faults(site, &loaded.key, &loaded.cert);
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

    /// Adds the signers of the table `[fleet.signers]`.
    pub(super) fn signers(&mut self) {
        let before = self.context.before.map(|before| &before.keys);
        for (name, settings) in &self.config.fleet.signers {
            if settings.addresses.is_empty() {
                // A problem of the configuration already.
                continue;
            }
            let location = Location {
                file: 0,
                path: vec!["fleet".into(), "signers".into(), name.as_str().into()],
            };
            let path = |file: &Path| self.config.path(&location, file);
            let log = self.context.key_log;
            if let Err(error) = self.keys.add_signer(name, settings, path, before, log) {
                self.missing_file(&location, error.fault, error.message, &error.hint);
            }
        }
    }

    /// Returns a certificate whose key is not just a file.
    fn certificate_elsewhere(
        &mut self,
        site: &Site,
        files: &CertificateFiles,
    ) -> Option<Certificate> {
        let path = |file: &Path| self.config.path(&site.location, file);
        let cert = path(&files.cert);
        let before = self.context.before.map(|before| &before.keys);
        let log = self.context.key_log;
        match self.keys.certified(&cert, &files.keys, path, before, log) {
            Ok(Some((key, is_slow))) => {
                self.warn_of_faults(site, &key, &cert);
                Some(if is_slow { Certificate::Slow(key) } else { Certificate::Read(key) })
            }
            // The problem of its signer is reported already.
            Ok(None) => None,
            Err(error) => {
                let location = site.location.key("tls");
                self.missing_file(&location, error.fault, error.message, &error.hint);
                None
            }
        }
    }

    fn warn_of_faults(&mut self, site: &Site, key: &CertifiedKey, cert: &Path) {
        let faults = certificate_faults(key, cert, &site.hosts, SystemTime::now());
        let warning = |fault: CertificateFault| {
            self.config.problem(&site.location.key("tls"), fault.message).with_hint(fault.hint)
        };
        self.warnings.extend(faults.into_iter().map(warning));
    }

    fn certificate_problem(&mut self, site: &Site, error: &CertificateError) {
        let hint = error.hint("name", "the certificate chain as cert and its key as key");
        let fault = match error {
            CertificateError::File { source, .. } | CertificateError::Store { source, .. } => {
                Fault::from(source)
            }
            _ => Fault::Malformed,
        };
        self.missing_file(&site.location.key("tls"), fault, error, &hint);
    }

    pub(super) fn client_auth(&mut self, site: &Site) -> Option<ClientAuthPlan> {
        let Some(Tls::Files(CertificateFiles { client: Some(client), .. })) = &site.tls else {
            return None;
        };
        match ClientAuthPlan::new(&self.config.path(&site.location, &client.ca), client.mode) {
            Ok(plan) => Some(plan),
            Err((fault, error)) => {
                self.missing_file(
                    &site.location.key("tls"),
                    fault,
                    error,
                    "name a file with certificates in PEM form as client.ca",
                );
                None
            }
        }
    }
}
