//! Selection of the route that answers a request.

pub(crate) mod action;
pub(crate) mod canonical;
mod fixed_response;
pub(crate) mod hosts;
pub(crate) mod postprocessing;
pub(crate) mod route_index;
pub(crate) mod rules;
pub(crate) mod site_plan;
