//! Constants of records.

/// The only protocol version.
pub(crate) const VERSION: u8 = 1;
/// The request ID: a connection carries only one request.
pub(crate) const REQUEST: u16 = 1;

/// Record types.
pub(crate) mod kind {
    pub(crate) const BEGIN_REQUEST: u8 = 1;
    pub(crate) const END_REQUEST: u8 = 3;
    pub(crate) const PARAMS: u8 = 4;
    pub(crate) const STDIN: u8 = 5;
    pub(crate) const STDOUT: u8 = 6;
    pub(crate) const STDERR: u8 = 7;
}
