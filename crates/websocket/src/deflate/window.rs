//! Window sizes (RFC 7692 section 7.1.2).

/// Smallest window that the compression library supports.
pub(super) const MIN_WINDOW_BITS: u8 = 9;
/// Largest window that the protocol permits.
pub(super) const MAX_WINDOW_BITS: u8 = 15;
