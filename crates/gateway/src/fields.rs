//! Header fields that name the client, the connection and the way of a request.

pub(crate) mod client_address;
pub(crate) mod connection_fields;
pub(crate) mod forwarding;
pub(crate) mod identity_fields;
