//! The two directions of a link.

/// Direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Client to server, near to far.
    Up,
    /// Server to client, far to near.
    Down,
}
