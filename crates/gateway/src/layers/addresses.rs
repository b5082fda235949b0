//! `allow` and `deny`: filters clients by address.

use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use ipnet::IpNet;
use pronghorn_engine::BodyError;
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{
    Around, Client, Layer, LocalService, Request, Response, WorkerContext, from_engine, too_early,
};
use crate::config::Network;
use crate::responses::text;

/// Options of `allow` and `deny`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct Options {
    /// Networks and addresses.
    addresses: Vec<Network>,
}

#[derive(Clone)]
pub(super) struct Addresses {
    networks: Arc<[IpNet]>,
    /// Whether the listed clients are allowed or denied.
    allows: bool,
}

impl Addresses {
    pub(super) fn new(options: &Options, allows: bool) -> Result<Self, String> {
        if options.addresses.is_empty() && !allows {
            return Err("`addresses` is empty: list addresses, or remove the layer".to_owned());
        }
        Ok(Self { networks: options.addresses.iter().map(|network| network.0).collect(), allows })
    }
}

impl Layer for Addresses {
    fn around(&self, inner: LocalService, _: &WorkerContext) -> LocalService {
        LocalService::around(self.clone(), inner)
    }

    fn needs_client(&self) -> bool {
        true
    }
}

impl Around for Addresses {
    async fn call(
        self: Rc<Self>,
        request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        let Some(&Client(client)) = request.extensions().get::<Client>() else {
            return Ok(too_early());
        };
        let may = self.networks.iter().any(|network| network.contains(&client)) == self.allows;
        if may {
            inner.call(request).await
        } else {
            Ok(from_engine(text(StatusCode::FORBIDDEN, "forbidden\n")))
        }
    }
}
