//! The TLS identity of `pronghorn run`.

use pronghorn_engine::Identity;
use pronghorn_gateway::{Fleet, Gateway};

use crate::failure::{Failure, Kind};
use crate::key_log;

/// Returns the identity of a server with all settings of its TLS.
pub(crate) fn of_gateway(gateway: &Gateway, fleet: Option<&Fleet>) -> Result<Identity, Failure> {
    let identity = gateway.identity().map_err(|error| {
        Failure::new(Kind::Internal, format_args!("cannot set up TLS: {error}"))
    })?;
    let identity = match fleet {
        Some(fleet) => fleet.share(identity),
        None => identity,
    };
    Ok(match key_log::from_environment()? {
        Some(key_log) => identity.with_key_log(&key_log),
        None => identity,
    })
}
