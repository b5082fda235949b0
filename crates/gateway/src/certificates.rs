//! Certificates of sites and of clients.

pub(crate) mod certificate_faults;
pub(crate) mod certificate_state;
pub(crate) mod client_auth;
pub(crate) mod distinguished_name;
pub(crate) mod key_log;
pub(crate) mod key_sources;
pub(crate) mod site_certificates;
